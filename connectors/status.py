"""`status.json` in a connector's folder: what `describe` shows of a worker that runs elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from compactor.errors import StorageError
from compactor.storage import Storage
from connectors.state import Status

NAME: Final = "status.json"
WRITE_EVERY_MS: Final = 5_000


class StatusFile:
    """Writes the newest status, at most every few seconds while nothing but counters changes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._counters: Mapping[str, int] = {}
        self._last: tuple[Status, int] | None = None

    def write(self, status: Status, now_ms: int, counters: Mapping[str, int] | None = None) -> None:
        """Writes `status`; a store that is away must not fail a connector for the sake of its status."""
        self._counters = counters if counters is not None else self._counters
        if self._last and self._last[0] == status and now_ms - self._last[1] < WRITE_EVERY_MS:
            return
        self._last = (status, now_ms)
        body = {
            "state": status.state,
            "error": status.error,
            "failures": status.failures,
            "next_restart_ms": status.next_restart_ms,
            "counters": dict(self._counters),
            "updated_ms": now_ms,
        }
        try:
            self._storage.write(NAME, msgspec.json.format(msgspec.json.encode(body), indent=2))
        except StorageError:
            self._last = None


def read(storage: Storage) -> dict[str, object] | None:
    """The last status that was written to a connector's folder; None where there is none."""
    if not storage.exists(NAME):
        return None
    found: dict[str, object] = msgspec.json.decode(storage.read(NAME))
    return found
