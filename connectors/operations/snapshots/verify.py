"""Compares the files of snapshots with their manifests: `keyfold snapshot verify`."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from compactor.errors import FoldError, MissingFileError, UnreadableFileError
from compactor.runs.checksums import sha256_of
from compactor.snapshot import manifest
from compactor.snapshot.file_reader import open_parquet
from compactor.snapshot.manifest import DataFile, Manifest
from compactor.storage.base import Storage
from connectors.errors import UsageError
from connectors.snapshot_folder import SnapshotFolder


class SnapshotFault(Struct, frozen=True):
    """What is wrong with a file of a snapshot; `file` is relative to the snapshot's folder."""

    file: str
    fault: str


class VerifiedSnapshot(Struct, frozen=True, kw_only=True):
    """A snapshot that was read as a whole: it is sound if it has no `faults`. `topic` is its folder's name."""

    topic: str
    id: str
    path: str
    files: int
    records: int
    bytes: int
    faults: tuple[SnapshotFault, ...]


def verify_snapshot(snapshot: SnapshotFolder, read: Callable[[int], None] = lambda _: None) -> VerifiedSnapshot:
    """Reads every data file of `snapshot` and compares it with its size, checksum and number of records.

    `read` is told the bytes of each file that was read. Raises StorageError if the store does not answer.
    """
    topic = snapshot.topic.location.rpartition("/")[2]
    try:
        said = snapshot.manifest()
    except (UsageError, FoldError) as error:
        unread = (SnapshotFault(manifest.NAME, error.message),)
        return VerifiedSnapshot(
            topic=topic, id=snapshot.id, path=snapshot.location, files=0, records=0, bytes=0, faults=unread
        )
    place = snapshot.files
    sizes = {info.path: info.bytes for info in place.walk("data")}
    faults: list[SnapshotFault] = []
    for file in said.files:
        if (fault := _fault_of(place, file, sizes.pop(file.path, None))) is not None:
            faults.append(SnapshotFault(file.path, fault))
        read(file.bytes)
    faults += [SnapshotFault(path, "The manifest does not name it, and readers of data read it.") for path in sizes]
    faults += _fault_of_counts(said)
    return VerifiedSnapshot(
        topic=topic,
        id=snapshot.id,
        path=snapshot.location,
        files=len(said.files),
        records=said.records,
        bytes=sum(file.bytes for file in said.files),
        faults=tuple(faults),
    )


def _fault_of(place: Storage, file: DataFile, size: int | None) -> str | None:
    """Returns what is wrong with a data file that has `size` bytes; None if nothing is."""
    if size is None:
        return "It is missing."
    if size != file.bytes:
        return f"It has {size:,} bytes; the manifest says {file.bytes:,}."
    try:
        return _fault_inside(place, file)
    except MissingFileError:
        return "It is missing: the snapshot may have been removed meanwhile."
    except UnreadableFileError as error:
        return error.message


def _fault_inside(place: Storage, file: DataFile) -> str | None:
    if sha256_of(place, file.path, file.bytes) != file.sha256:
        return "Its checksum is not the manifest's: its bytes are not what was written."
    try:
        with open_parquet(place, file.path, file.bytes) as opened:
            records = opened.metadata.num_rows
    except FoldError as error:
        return error.message
    return None if records == file.records else f"It has {records:,} records; the manifest says {file.records:,}."


def _fault_of_counts(said: Manifest) -> list[SnapshotFault]:
    counted = sum(file.records for file in said.files)
    if counted == said.records:
        return []
    return [SnapshotFault(manifest.NAME, f"It says {said.records:,} records, and {counted:,} in its files.")]
