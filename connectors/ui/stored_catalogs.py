"""Reads the catalogs of connectors that nothing runs, so that pages show what is kept of them too."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from compactor.errors import KeyfoldError
from compactor.model.state import CatalogState
from connectors.clock import Clock
from connectors.runtime.supervised_connector import Connector
from connectors.threads import started

KEPT_MS: Final = 15_000
"""How long (ms) what was read counts: nothing of a connector changes while nothing runs it, but by commands."""
MOST_KEPT: Final = 8
"""How many catalogs are kept: each may be some MB, and people look at one or two."""
MOST_READS: Final = 2
"""How many are read at once: a store that hangs holds no more threads than these."""
WAIT_S: Final = 1.0
"""How long (s) a page waits for a read: a catalog takes some ms in a folder, and tenths of a second in a store."""


class StoredCatalog(Struct, frozen=True):
    """What is kept of a connector; `state` is None if it is not read yet, or could not be read."""

    state: CatalogState | None = None


class _Read(Struct):
    """A read that was begun at a time of the monotonic clock (ms)."""

    begun_ms: int
    over: threading.Event
    kept: StoredCatalog


class StoredCatalogs:
    """Reads catalogs by `read`, which gets a connector's name and raises KeyfoldError; threads share it."""

    def __init__(self, read: Callable[[str], CatalogState], clock: Clock, wait_s: float = WAIT_S) -> None:
        self._read = read
        self._clock = clock
        self._wait_s = wait_s
        # By name and since when it is that connector's, the oldest first; changed under the lock.
        self._reads: OrderedDict[tuple[str, int], _Read] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, connector: Connector) -> StoredCatalog:
        """Returns the catalog of a connector that nothing runs; waits for it only if it has the read begun."""
        key = (connector.name, connector.spec.since_ms)
        if connector.catalog_state is not None:
            self._forget(key)
            return StoredCatalog()
        begun = self._begin(key)
        if begun is not None:
            begun.over.wait(self._wait_s)
        with self._lock:
            read = self._reads.get(key)
            return StoredCatalog() if read is None else read.kept

    def _forget(self, key: tuple[str, int]) -> None:
        with self._lock:
            self._reads.pop(key, None)

    def _begin(self, key: tuple[str, int]) -> _Read | None:
        """Begins a read unless a newer one is kept, or MOST_READS are under way; returns it."""
        with self._lock:
            now_ms, last = self._clock.monotonic_ms(), self._reads.get(key)
            under_way = sum(not read.over.is_set() for read in self._reads.values())
            is_newer = last is not None and (not last.over.is_set() or now_ms - last.begun_ms < KEPT_MS)
            if is_newer or under_way >= MOST_READS:
                return None
            read = _Read(now_ms, threading.Event(), StoredCatalog() if last is None else last.kept)
            self._reads[key] = read
            self._reads.move_to_end(key)
            self._drop_oldest()
        try:
            started(threading.Thread(target=self._run, args=(key[0], read), name="page-catalog", daemon=True))
        except KeyfoldError:
            read.over.set()
        return read

    def _drop_oldest(self) -> None:
        """Keeps MOST_KEPT; those that are under way count, and stay."""
        over = [key for key, read in self._reads.items() if read.over.is_set()]
        for key in over[: max(0, len(self._reads) - MOST_KEPT)]:
            del self._reads[key]

    def _run(self, name: str, read: _Read) -> None:
        try:
            read.kept = StoredCatalog(self._read(name))
        except KeyfoldError:
            read.kept = StoredCatalog()
        finally:
            read.over.set()
