"""Maintains a connector's logs once they are published: clean, snapshot, vacuum.

It has a thread of its own, which never holds up those of `Engine.take` and `Engine.tick`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Container
from typing import TYPE_CHECKING

from msgspec import Struct

from compactor.catalog.catalog import Catalog
from compactor.clean.cleaner import CleanedLog, Cleaner
from compactor.clean.vacuum import purge_runs, vacuum
from compactor.errors import QuarantinedError
from compactor.failpoints import hit
from compactor.metrics import Counters
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.quarantine.quarantine import QuarantineManager
from compactor.snapshot.snapshots import Snapshots

if TYPE_CHECKING:
    from compactor.model.actions import AddSnapshot


class Erased(Struct, frozen=True, kw_only=True):
    """What an erasure has done in a connector: logs that were cleaned, snapshots (ids) that were removed, run files.

    `held` says by topic why older versions of its table are still there.
    """

    logs: tuple[CleanedLog, ...]
    snapshots: tuple[str, ...]
    run_files: int
    held: dict[str, str]


def naming(state: CatalogState, files: Collection[str]) -> frozenset[TopicPartition]:
    """Returns the logs that name one of `files`: several logs share a file, which stays until none names it."""
    return frozenset(log.tp for log in state.logs if not log.paths.isdisjoint(files)) if files else frozenset()


class Maintenance:
    """What follows publishing in one connector; one thread calls it, its `cleaner` and its `snapshots`."""

    def __init__(
        self,
        cleaner: Cleaner,
        snapshots: Snapshots,
        catalog: Catalog,
        quarantine: QuarantineManager,
        counters: Counters,
        stop: threading.Event,
    ) -> None:
        self.cleaner = cleaner
        self.snapshots = snapshots
        self._catalog = catalog
        self._quarantine = quarantine
        self._counters = counters
        self._stop = stop

    def snapshot(self, now_ms: int, *, asked: bool = True, again: bool = True) -> tuple[AddSnapshot, ...]:
        """Cleans everything published and writes a snapshot of every topic; returns the new snapshots.

        If no command `asked` for it, a log that cannot be cleaned stays as it is; the others' snapshots are taken.
        Without `again`, no snapshot is written that would repeat the newest one of its topic.
        """
        self.cleaner.clean(now_ms, asked=asked)
        taken = self.snapshots.take(now_ms, asked=asked, again=again)
        self._counters.add("snapshots", len(taken))
        return taken

    def release(self, now_ms: int, wanted: Collection[TopicPartition] | None = None) -> int:
        """Ends the quarantine of all logs, or of those `wanted`; returns how many logs. Raises StorageError."""
        logs = [log for log in self._catalog.state.logs if wanted is None or log.tp in wanted]
        return self._quarantine.release(logs, now_ms)

    def check_complete(self, wanted: Collection[TopicPartition] | None = None) -> None:
        """Raises QuarantinedError if an open topic's log (of `wanted`) is in quarantine: then not all was done."""
        state = self._catalog.state
        logs = [log for log in state.logs if wanted is None or log.tp in wanted]
        held = [log for log in logs if log.quarantine and state.topics[log.topic].closed is None]
        for log in held[:1]:
            assert log.quarantine is not None
            raise QuarantinedError(
                f"Connector {state.connector}: {len(held)} of its partitions are quarantined, first of "
                f"them {log.tp}: {log.quarantine.error}",
                "`keyfold describe` shows them all; the others are done.",
            )

    def vacuum(self, now_ms: int, grace_ms: int, running: Callable[[], Container[str]]) -> None:
        """Removes files that nothing names; `running` gives the jobs of others that may still commit.

        Logs of which an index is gone are due for a clean from then on.
        LATEST is repaired too: an owner that slept may have set it back. Raises as `vacuum` does.
        """
        done = vacuum(self._catalog.storage, self._catalog, now_ms, grace_ms, running)
        self.cleaner.replace_indexes(done.lost_indexes)
        self.snapshots.repair()

    def erase(
        self,
        now_ms: int,
        topics: Collection[str],
        snapshots: Collection[str],
        files: Collection[str],
        running: Callable[[], Container[str]],
    ) -> Erased:
        """Lets go of what a clean of the logs of `topics` replaces, in runs, snapshots and tables: steps E4 to E7.

        `snapshots` are the ids of those that are removed; `files` are run files with rows that only other logs had:
        those that name one are written again. `running` is that of `vacuum`. It may be repeated. Raises
        QuarantinedError before any snapshot is touched, and what a clean or a snapshot raises.
        """
        forced = naming(self._catalog.state, files)
        wanted = forced.union(log.tp for log in self._catalog.state.logs if log.topic in topics)
        logs = self.cleaner.clean(now_ms, wanted, forced=forced)  # E4
        self.check_complete(wanted)
        removed: list[str] = []
        held: dict[str, str] = {}
        for topic in topics:
            removed += self.snapshots.remove(topic, snapshots, now_ms)  # E5
            if why := self.snapshots.purge_table(topic):  # E6
                held[topic] = why
            hit("erase.table")
        done = purge_runs(self._catalog.storage, self._catalog, now_ms, running)  # E7
        self.cleaner.replace_indexes(done.lost_indexes)
        return Erased(logs=logs, snapshots=tuple(removed), run_files=done.files, held=held)

    def interrupt(self) -> None:
        """Cancels what runs now, for a stop: that it fails then says nothing about any log."""
        self._stop.set()
