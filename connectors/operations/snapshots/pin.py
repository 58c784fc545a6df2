"""Pins snapshots, so that retention leaves them, and takes pins away: `keyfold snapshot pin` and `unpin`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from compactor.snapshot import pins
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.errors import ConflictError
from connectors.operations.snapshots.place import SnapshotFolder


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
        if not pins.pin(each.topic, each.id, clock.now_ms()):
            raise ConflictError(
                f"Snapshot {each.location} cannot be pinned: it is being removed.",
                "Pin a newer one, or take one: keyfold snapshot CONNECTOR.json.",
            )
        yield PinResult(each.id, each.location, pinned=True, changed=not before)


def unpin(snapshots: Iterable[SnapshotFolder]) -> Iterator[PinResult]:
    """Takes the pins of snapshots away. Raises StorageError."""
    for each in snapshots:
        yield PinResult(each.id, each.location, pinned=False, changed=pins.unpin(each.topic, each.id))
