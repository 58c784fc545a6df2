"""Pins snapshots, so that retention leaves them, and takes pins away: `keyfold snapshot pin` and `unpin`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec import Struct

from compactor.errors import StorageRefusedError
from compactor.snapshot import pins
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.errors import ConflictError
from connectors.snapshot_folder import SnapshotFolder


class PinResult(Struct, frozen=True):
    """A snapshot after `pin` or `unpin`; `changed`: whether it was otherwise before."""

    id: str
    path: str
    pinned: bool
    changed: bool


def pin(snapshots: Iterable[SnapshotFolder], clock: Clock = SYSTEM_CLOCK) -> Iterator[PinResult]:
    """Pins complete snapshots. Raises UsageError if one is incomplete, ConflictError if it is removed, StorageError."""
    for each in snapshots:
        each.manifest()
        before = pins.is_pinned(each.topic, each.id)
        _pin(each, clock)
        yield PinResult(each.id, each.location, pinned=True, changed=not before)


def unpin(snapshots: Iterable[SnapshotFolder]) -> Iterator[PinResult]:
    """Takes the pins of snapshots away. Raises StorageError."""
    for each in snapshots:
        yield PinResult(each.id, each.location, pinned=False, changed=pins.unpin(each.topic, each.id))


def hold(snapshot: SnapshotFolder, restore: str, clock: Clock = SYSTEM_CLOCK) -> None:
    """Pins a snapshot until `restore` lets it go. Without the right to write there it stays as it is.

    Raises ConflictError if it is removed, StorageError.
    """
    with suppress(StorageRefusedError):
        _pin(snapshot, clock, restore)


def let_go(snapshot: SnapshotFolder, restore: str) -> None:
    """Takes away the pin that `hold` has made, if it is still the same. Raises StorageError."""
    pins.unpin(snapshot.topic, snapshot.id, restore)


def _pin(snapshot: SnapshotFolder, clock: Clock, restore: str | None = None) -> None:
    if not pins.pin(snapshot.topic, snapshot.id, clock.now_ms(), restore):
        raise ConflictError(
            f"Snapshot {snapshot.location} cannot be pinned: it is being removed.",
            "Name a newer one, or take one: keyfold snapshot CONNECTOR.json.",
        )
