"""Maintains a connector's logs once they are published: clean, snapshot, vacuum.

It has a thread of its own, which never holds up those of `Engine.take` and `Engine.tick`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Container
from typing import TYPE_CHECKING

from compactor.catalog.catalog import Catalog
from compactor.clean.cleaner import Cleaner
from compactor.clean.vacuum import vacuum
from compactor.errors import QuarantinedError
from compactor.metrics import Counters
from compactor.model.record import TopicPartition
from compactor.quarantine.quarantine import QuarantineManager
from compactor.snapshot.snapshots import Snapshots

if TYPE_CHECKING:
    from compactor.model.actions import AddSnapshot


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

    def interrupt(self) -> None:
        """Cancels what runs now, for a stop: that it fails then says nothing about any log."""
        self._stop.set()
