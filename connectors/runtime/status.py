"""`status.json` in a connector's folder: what `describe` shows of a worker that runs elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from compactor.errors import StorageError
from compactor.storage.base import Storage
from connectors.runtime.state import Status

NAME: Final = "status.json"
WRITE_EVERY_MS: Final = 5_000


class StatusFile:
    """Writes the newest status, at most every few seconds while nothing but counters changes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._counters: Mapping[str, int] = {}
        self._since_ms: int | None = None
        self._last: tuple[Status, int] | None = None

    def write(
        self, status: Status, now_ms: int, counters: Mapping[str, int] | None = None, since_ms: int | None = None
    ) -> bool:
        """Writes `status`, with what was counted since `since_ms`; False where the store does not take it.

        That must not fail a connector: it is only its status.
        """
        if counters is not None:
            self._counters, self._since_ms = counters, since_ms
        if self._last and self._last[0] == status and now_ms - self._last[1] < WRITE_EVERY_MS:
            return True
        self._last = (status, now_ms)
        body = {
            "state": status.state,
            "error": status.error,
            "failures": status.failures,
            "next_restart_ms": status.next_restart_ms,
            "counters": dict(self._counters),
            "counted_since_ms": self._since_ms,
            "updated_ms": now_ms,
        }
        try:
            self._storage.write(NAME, msgspec.json.format(msgspec.json.encode(body), indent=2))
        except StorageError:
            self._last = None
            return False
        return True


def read(storage: Storage) -> dict[str, object] | None:
    """The last status that was written to a connector's folder; None where there is none."""
    if not storage.exists(NAME):
        return None
    found: dict[str, object] = msgspec.json.decode(storage.read(NAME))
    return found
