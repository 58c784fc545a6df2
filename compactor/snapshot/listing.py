"""Lists the snapshots of a topic in the location, deletes those that may go, and leads readers to the newest.

A snapshot is deleted in this order: the manifest first, the mark last. So no reader ever finds a manifest without all
its files, nor data without the mark of its catalog. One that is pinned (`pins`) is not deleted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from compactor.errors import FoldError, ForeignContentError, MissingFileError
from compactor.model.actions import AddSnapshot, DropSnapshot
from compactor.model.state import CatalogState
from compactor.snapshot import location, manifest, pins
from compactor.storage.base import Storage

LATEST: Final = "LATEST"
CURRENT: Final = "current"
# What `write.snapshot_id` makes; other names in the folder are no snapshots.
_ID: Final = re.compile(r"\d{8}T\d{6}Z-[0-9A-Za-z]+")
_READ: Final = 2
"""How many of the newest snapshots are dropped only after all others: readers may work from them for minutes."""


class Unreferenced(Struct, frozen=True, kw_only=True):
    """The snapshots in a topic's folder that its catalog does not name.

    `removable` are this catalog's own: why each may go, by id. `others` are the ids of all that are not known as such.
    """

    removable: dict[str, str]
    others: tuple[str, ...]


def is_id(name: str) -> bool:
    """Returns whether `name` is that of a snapshot's folder."""
    return _ID.fullmatch(name) is not None


def latest_of(topic: Storage) -> str | None:
    """Reads the id of the newest snapshot in the folder of a topic; None if it names none. Raises StorageError."""
    try:
        name = topic.read(LATEST).decode().strip()
    except (MissingFileError, ForeignContentError, UnicodeDecodeError):
        return None
    return name if is_id(name) else None


def list_ids(place: Storage, state: CatalogState, topic: str) -> tuple[str, ...]:
    """Lists the ids of all snapshots of `topic` in the location, complete or not, of whatever catalog."""
    return tuple(filter(is_id, place.list(f"{state.connector}/{topic}")))


def newest_manifest(place: Storage, state: CatalogState, topic: str) -> manifest.Manifest | None:
    """Reads the manifest of the newest snapshot of `topic` that can be read; None if there is none.

    It is the one that was committed last. If the catalog names none, as after a rebuild, it is the newest by id
    of those in the location. Raises StorageError.
    """
    named = [snapshot.id for snapshot in state.snapshots_of(topic)]
    for name in reversed(named or sorted(list_ids(place, state, topic))):
        with suppress(FoldError, MissingFileError):
            return manifest.read(place, f"{state.connector}/{topic}/{name}")
    return None


def ids(state: CatalogState, topic: str) -> set[str]:
    """Returns the ids of the snapshots of `topic` that the catalog names."""
    return {snapshot.id for snapshot in state.snapshots_of(topic)}


def unreferenced(
    place: Storage,
    state: CatalogState,
    topic: str,
    before: Collection[str],
    dropped: Collection[str] = (),
    keep: int = 0,
) -> Unreferenced:
    """Returns which of the snapshots `before` (ids) of `topic` the catalog does not name, and which are its own.

    `before` was listed before the owner's last commit, which took the ids `dropped` out of the catalog: so none of it
    belongs to a newer owner, who may have taken over since. What the catalog named is its own; of any other snapshot
    the mark, else the manifest, names the catalog. A complete snapshot of its own stays while it is among the newest
    `keep` by id: the catalog may be a copy that was restored from before the snapshot was taken.
    """
    named = ids(state, topic)
    newest = sorted(named.union(before), reverse=True)[:keep]
    removable: dict[str, str] = {}
    others: list[str] = []
    for name in before:
        path = f"{state.connector}/{topic}/{name}"
        if name in dropped:
            removable[name] = "beyond snapshot.retention.count"
        elif name not in named and location.catalog_of(place, path) != state.catalog_id:
            others.append(name)
        elif name not in named and manifest.path_of(place, path) is None:
            removable[name] = "it was never completed"
        elif name not in named and name not in newest:
            removable[name] = "the catalog does not name it"
    return Unreferenced(removable=removable, others=tuple(others))


def list_others(place: Storage, state: CatalogState, topic: str) -> tuple[str, ...]:
    """Lists the ids of the snapshots in the folder of `topic` that are not this catalog's: they stay as they are."""
    return unreferenced(place, state, topic, list_ids(place, state, topic)).others


def expired(state: CatalogState, topic: str, keep: int, pinned: Collection[str] = ()) -> tuple[DropSnapshot, ...]:
    """Returns the drops of all snapshots of `topic` but `keep`: first those that a later one repeats, then the oldest.

    Those that are `pinned` (ids) stay, and do not count.

    So snapshots of a topic that stands still push out each other, none that says something else; but the last two go
    last, as readers may have begun with either. The newest one always stays: it is the one that was committed last, as
    a clock may have been set back since.
    """
    snapshots = [snapshot for snapshot in state.snapshots_of(topic) if snapshot.id not in pinned]
    older = snapshots[:-_READ]
    repeated = [snapshot for at, snapshot in enumerate(older) if _is_repeated(snapshot, snapshots[at + 1 :])]
    others = [snapshot for snapshot in snapshots if snapshot not in repeated]
    dropped = [*repeated, *others][: max(0, len(snapshots) - max(1, keep))]
    return tuple(DropSnapshot(topic=topic, id=snapshot.id) for snapshot in snapshots if snapshot in dropped)


def _is_repeated(snapshot: AddSnapshot, later: Sequence[AddSnapshot]) -> bool:
    """Returns whether `later` has one of the same moment: base runs that end there have the same records."""
    said = (snapshot.source_offsets, snapshot.records)
    return any((other.source_offsets, other.records) == said for other in later)


def delete(place: Storage, path: str) -> bool:
    """Deletes the snapshot at `path`, complete or not: its manifest first, its mark last. Raises StorageError.

    Returns False, and leaves it, if it is pinned: only one that is complete can be.
    """
    if manifest.path_of(place, path) is not None and not pins.begin_removal(place, path):
        return False
    clear(place, path)
    place.delete_folder(path)
    return True


def clear(place: Storage, path: str) -> None:
    """Deletes the manifest and the data of the snapshot at `path`, and leaves its mark. Raises StorageError.

    If the answer of a request was lost, the store may still carry it out: by the mark, what comes of it is known as the
    catalog's.
    """
    for name in manifest.NAMES:
        place.delete(f"{path}/{name}")
    place.delete_folder(f"{path}/data")


def set_latest(place: Storage, taken: AddSnapshot) -> None:
    """Lets LATEST name `taken`, which is in the catalog. Raises StorageError."""
    place.write(_beside(taken, LATEST), f"{taken.id}\n".encode())


def set_current(place: Storage, taken: AddSnapshot) -> None:
    """Lets `current` lead to the data of `taken`, if the store has links. Raises StorageError."""
    place.link(_beside(taken, CURRENT), f"{taken.path}/data")


def repair_latest(place: Storage, state: CatalogState) -> None:
    """Makes LATEST and `current` of every topic lead to its newest snapshot: an owner may have died before it did so.

    A snapshot that is not there any more is passed over: a restored catalog may name some that a later one has dropped.
    In a folder that is another catalog's nothing is changed. Raises StorageError.
    """
    if not state.snapshots or not location.owns(place, state):
        return
    newest = {snapshot.topic: snapshot for snapshot in state.snapshots}.values()
    there = [taken for taken in newest if manifest.path_of(place, taken.path)]
    for taken in there:
        path = _beside(taken, LATEST)
        if not place.exists(path) or place.read(path).strip() != taken.id.encode():
            set_latest(place, taken)
    for taken in there:
        set_current(place, taken)


def _beside(taken: AddSnapshot, name: str) -> str:
    return f"{taken.path.rpartition('/')[0]}/{name}"
