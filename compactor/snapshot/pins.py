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
from compactor.model.actions import AddSnapshot
from compactor.snapshot import manifest
from compactor.storage.base import Storage

PIN: Final = "_pin@keyfold.json"
"""Readers of Parquet skip it, as they do a manifest."""


class Pin(Struct, frozen=True, kw_only=True):
    """What PIN says: since when (UTC, ISO 8601) the snapshot is pinned; `removing`: it is being removed instead."""

    format_version: int = 1
    pinned_at: str | None = None
    removing: bool = False


def read(place: Storage, path: str) -> Pin | None:
    """Reads what PIN says of the snapshot at `path`, None if there is none. A damaged one keeps the snapshot.

    Raises StorageError.
    """
    if not place.exists(f"{path}/{PIN}"):
        return None
    try:
        return msgspec.json.decode(place.read(f"{path}/{PIN}"), type=Pin)
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


def pin(place: Storage, path: str, now_ms: int) -> bool:
    """Pins the complete snapshot at `path`, which may be pinned already; False if it goes, or has gone.

    Raises StorageError.
    """
    made = place.create(f"{path}/{PIN}", _encoded(Pin(pinned_at=manifest.iso(now_ms))))
    if not made and not is_pinned(place, path):
        return False
    if manifest.path_of(place, path) is not None:
        return True
    if made:
        unpin(place, path)
    return False


def unpin(place: Storage, path: str) -> bool:
    """Takes the pin of the snapshot at `path` away; False if it had none. Raises StorageError."""
    if not is_pinned(place, path):
        return False
    place.delete_own([f"{path}/{PIN}"], _is_pin)
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
        return not msgspec.json.decode(content, type=Pin).removing
    except UNDECODABLE:
        return True
