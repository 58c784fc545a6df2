"""Says what snapshots there are, and what one of them is: `keyfold snapshot list` and `show`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import UNSET, Struct

from compactor.errors import FoldError, MissingFileError
from compactor.snapshot import listing, manifest, pins
from compactor.snapshot.manifest import Manifest
from compactor.storage.base import Storage
from connectors.operations.snapshots.place import list_folders
from connectors.snapshot_folder import SnapshotFolder

COMPLETE: Final = "complete"
INCOMPLETE: Final = "incomplete"
UNREADABLE: Final = "unreadable"
REMOVING: Final = "being removed"


class ListedSnapshot(Struct, frozen=True, kw_only=True):
    """A snapshot of a topic; without a manifest that can be read nothing is known of what it holds.

    `state` is one of those above. `taken`: UTC, ISO 8601. `format`: `bytes`, `text` or `typed`. `mode`: `latest` or
    `append`. `bytes`: those of its data files.
    """

    topic: str
    id: str
    path: str
    state: str
    taken: str | None = None
    records: int | None = None
    bytes: int | None = None
    format: str | None = None
    mode: str | None = None
    pinned: bool
    newest: bool
    catalog_id: str | None = None


class ShownSnapshot(Struct, frozen=True, kw_only=True):
    """What `show` says of a snapshot; `pinned_at`: since when (UTC, ISO 8601), None if it is not pinned."""

    id: str
    path: str
    pinned: bool
    pinned_at: str | None
    newest: bool
    format: str
    manifest: Manifest


def list_snapshots(place: Storage) -> Iterator[ListedSnapshot]:
    """Yields the snapshots in a connector's folder, by topic and id, whatever catalog they are of.

    Raises StorageError.
    """
    for topic, folders in list_folders(place).items():
        newest = listing.latest_of(place.sub(topic))
        for each in folders:
            yield _listed(topic, each, newest=each.id == newest)


def show_snapshot(snapshot: SnapshotFolder) -> ShownSnapshot:
    """Returns what a complete snapshot is. Raises as `SnapshotFolder.manifest`."""
    said, pin = snapshot.manifest(), pins.read(snapshot.topic, snapshot.id)
    pinned = pin is not None and not pin.removing
    return ShownSnapshot(
        id=snapshot.id,
        path=snapshot.location,
        pinned=pinned,
        pinned_at=pin.pinned_at if pin is not None and pinned else None,
        newest=listing.latest_of(snapshot.topic) == snapshot.id,
        format=format_of(said),
        manifest=said,
    )


def format_of(said: Manifest) -> str:
    """Returns what the columns of keys and values are: `typed`, `text` if one is UTF-8, else `bytes`."""
    if said.typed is not UNSET:
        return "typed"
    texts = [column for column in said.schema if column.name in ("key", "value") and column.type == "string"]
    return "text" if texts else "bytes"


def _listed(topic: str, snapshot: SnapshotFolder, *, newest: bool) -> ListedSnapshot:
    pin = pins.read(snapshot.topic, snapshot.id)
    going = pin is not None and pin.removing
    pinned = pin is not None and not going
    try:
        said = manifest.read(snapshot.topic, snapshot.id)
    except (MissingFileError, FoldError) as error:
        state = REMOVING if going else INCOMPLETE if isinstance(error, MissingFileError) else UNREADABLE
        return ListedSnapshot(
            topic=topic, id=snapshot.id, path=snapshot.location, state=state, pinned=pinned, newest=newest
        )
    return ListedSnapshot(
        topic=topic,
        id=snapshot.id,
        path=snapshot.location,
        state=REMOVING if going else COMPLETE,
        taken=said.created_at,
        records=said.records,
        bytes=sum(file.bytes for file in said.files),
        format=format_of(said),
        mode=manifest.mode_of(said),
        pinned=pinned,
        newest=newest,
        catalog_id=said.catalog_id,
    )
