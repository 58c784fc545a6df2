"""Pins: a snapshot that a person has pinned stays, whatever retention says.

The folder of a snapshot has at most one file PIN, which is created only if it is absent: to pin the snapshot, or to
remove it, before its manifest goes. So exactly one of both comes first, and the other sees it. Who pins looks for the
manifest once the file is there: without one the snapshot had gone before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from compactor.decode_errors import UNDECODABLE
from compactor.errors import ForeignContentError, StorageError
from compactor.json_types import decoded_as
from compactor.model.actions import AddSnapshot
from compactor.snapshot import manifest
from compactor.storage.base import Storage

PIN: Final = "_pin@keyfold.json"
"""Readers of Parquet skip it, as they do a manifest."""


class Pin(Struct, frozen=True, kw_only=True):
    """What PIN says: since when (UTC, ISO 8601) the snapshot is pinned; `removing`: it is being removed instead.

    `restore`: a restore holds it until it has ended, the one to the topic with this id. A person's pin has none.
    """

    format_version: int = 1
    pinned_at: str | None = None
    removing: bool = False
    restore: str | None = None


def read(place: Storage, path: str) -> Pin | None:
    """Reads what PIN says of the snapshot at `path`, None if there is none. A damaged one keeps the snapshot.

    Raises StorageError.
    """
    if not place.exists(f"{path}/{PIN}"):
        return None
    try:
        return decoded_as(place.read(f"{path}/{PIN}"), Pin)
    except (*UNDECODABLE, ForeignContentError):
        return Pin()
    except StorageError:
        if place.exists(f"{path}/{PIN}"):
            raise
        return None  # it was taken away meanwhile


def is_pinned(place: Storage, path: str) -> bool:
    """Returns whether the snapshot at `path` is pinned. Raises StorageError."""
    said = read(place, path)
    return said is not None and not said.removing


def pinned_ids(place: Storage, snapshots: Iterable[AddSnapshot]) -> frozenset[str]:
    """Returns the ids of those of `snapshots` that are pinned. Raises StorageError."""
    return frozenset(each.id for each in snapshots if is_pinned(place, each.path))


def pin(place: Storage, path: str, now_ms: int, restore: str | None = None) -> bool:
    """Pins the complete snapshot at `path`, which may be pinned already; False if it goes, or has gone.

    With `restore` until that one ends. The pin of another restore becomes a person's, which stays. Raises StorageError.
    """
    if manifest.path_of(place, path) is None:
        return False
    said = Pin(pinned_at=manifest.iso(now_ms), restore=restore)
    made = place.create(f"{path}/{PIN}", _encoded(said))
    if not made and not _shared(place, path, restore):
        return False
    if manifest.path_of(place, path) is not None:
        return True
    if made:
        unpin(place, path)
        if not place.walk(path):
            place.delete_folder(path)
    return False


def _shared(place: Storage, path: str, restore: str | None) -> bool:
    """Makes the pin that is there stay for `restore` too; False if there is none, or it changes meanwhile."""
    there = read(place, path)
    if there is None or there.removing:
        return False
    if there.restore in (None, restore):
        return True
    persons = _encoded(Pin(pinned_at=there.pinned_at))
    return place.replace(f"{path}/{PIN}", place.read(f"{path}/{PIN}"), persons)


def unpin(place: Storage, path: str, restore: str | None = None) -> bool:
    """Takes the pin of the snapshot at `path` away, with `restore` only that one's; False if it had none.

    Raises StorageError.
    """
    said = read(place, path)
    if said is None or said.removing or restore not in (None, said.restore):
        return False
    place.delete_own([f"{path}/{PIN}"], _is_pin if restore is None else lambda content: content == _encoded(said))
    return True


def begin_removal(place: Storage, path: str) -> bool:
    """Says that the snapshot at `path` goes, so that it cannot be pinned any more; False if it is pinned.

    Raises StorageError.
    """
    return place.create(f"{path}/{PIN}", _encoded(Pin(removing=True))) or not is_pinned(place, path)


def _encoded(said: Pin) -> bytes:
    return msgspec.json.encode(said) + b"\n"


def _is_pin(content: bytes) -> bool:
    try:
        return not decoded_as(content, Pin).removing
    except UNDECODABLE:
        return True
