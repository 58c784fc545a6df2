"""Copies the newest snapshot of a topic if nothing has changed since: by the store's own copy, no task reads it.

This is right as nothing that is copied can be something else by then. A snapshot never changes once it has its
manifest, and no other ever gets its path, which has a random end. Its files have the sizes that the manifest says
before they are copied. Each copy is complete or absent, and the new manifest, which names the same bytes and sums, is
written after the last one. An object store watches over its own bytes; in a folder each copy is read once more, so that
damage in the newest snapshot is not handed on. Retention drops the newest snapshot only by a commit of a newer one;
if a newer owner or a person deletes it meanwhile, a file is missing. A new snapshot that cannot be copied is written
from the runs, under another id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from msgspec import Struct

from compactor.errors import FoldError, SnapshotStorageError, StorageError
from compactor.model.state import CatalogState
from compactor.runs.checksums import sha256_of
from compactor.snapshot import manifest
from compactor.snapshot.data_files import columns
from compactor.snapshot.manifest import DataFile, Manifest, SnapshotInputs, WrittenFiles
from compactor.storage.base import Storage

_AT_ONCE: Final = 8
"""How many files are copied side by side: an object store takes seconds for one."""


class Repeated(Struct, frozen=True, kw_only=True):
    """A snapshot that a new one would repeat: its id, its folder in the location, its manifest.

    `left_out` is how many records the new one would leave out, which may be fewer.
    """

    id: str
    path: str
    manifest: Manifest
    left_out: int


def find_repeated(place: Storage, state: CatalogState, topic: str, inputs: SnapshotInputs) -> Repeated | None:
    """Finds the newest snapshot of `topic`, if a new one would say and hold the same, but for its times.

    None too if a file of it is missing or has another size than its manifest says, or if the manifest cannot be read.
    """
    newest = next(reversed(state.snapshots_of(topic)), None)
    logs = state.logs_of(topic)
    if newest is None or newest.source_offsets != manifest.vector(logs, inputs.mode):
        return None  # so a topic that goes on costs no request
    try:
        newest_manifest = manifest.read(place, newest.path)
        sizes = {info.path: info.bytes for info in place.walk(newest.path)}
    except (StorageError, FoldError):
        return None
    complete = all(sizes.get(f"{newest.path}/{file.path}") == file.bytes for file in newest_manifest.files)
    same = manifest.would_repeat(newest_manifest, state, logs, columns(inputs.strings), inputs)
    if not (complete and same):
        return None
    left_out = manifest.left_out_of(newest_manifest, logs)
    return Repeated(id=newest.id, path=newest.path, manifest=newest_manifest, left_out=left_out)


def copy_data(
    place: Storage, newest: Repeated, path: str, until_stopped: Callable[[Iterable[None]], Iterator[None]]
) -> WrittenFiles:
    """Copies the data files of `newest` to the folder `path` by the store's own means; returns what is there then.

    `until_stopped` takes what is done file by file, and raises if a stop comes between two. Raises StorageError,
    SnapshotStorageError if a file of a folder is not, byte for byte, what was written.
    """
    files = newest.manifest.files

    def copy(file: DataFile) -> None:
        source, target = f"{newest.path}/{file.path}", f"{path}/{file.path}"
        place.copy(source, target)
        if place.is_folder and sha256_of(place, target, file.bytes) != file.sha256:
            raise SnapshotStorageError(
                f"{place.location}/{source} is damaged: its bytes are not what was written.",
                "Do not read that snapshot any more; a newer one is written from the runs.",
            )

    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        for _ in until_stopped(pool.map(copy, files)):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
    if not place.is_folder:
        _check_sizes(place, path, files)
    return manifest.repeated(newest.manifest, newest.left_out)


def _check_sizes(place: Storage, path: str, files: Iterable[DataFile]) -> None:
    """Raises SnapshotStorageError if a copy is not there or has another size.

    A server that ignores the source of a copy makes an empty object, and some servers answer before the copy is there.
    """
    sizes = {info.path: info.bytes for info in place.walk(path)}
    for file in files:
        if sizes.get(f"{path}/{file.path}") != file.bytes:
            raise SnapshotStorageError(
                f"{place.location}/{path}/{file.path} has {sizes.get(f'{path}/{file.path}')} bytes in place of "
                f"{file.bytes}, although its copy was answered.",
                "It is written from the runs in place of it; see whether the store copies objects.",
            )
