"""One bad log must not stop the others: finds whom a failed job concerns, and sets only those aside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import structlog

from compactor import inspection, quarantine
from compactor.actions import AnyAction
from compactor.catalog import Catalog
from compactor.errors import KeyfoldError, StorageError
from compactor.log import PartitionLog
from compactor.reading import Slice
from compactor.record import TopicPartition
from compactor.storage import Storage

T = TypeVar("T")

PATIENCE: Final = 3
"""So often in a row a log whose files are sound may fail in a fold before it is set aside."""

_log = structlog.get_logger()


class Isolation:
    """Runs jobs over many logs; what fails is narrowed down to the logs that it concerns."""

    def __init__(self, storage: Storage, catalog: Catalog) -> None:
        self.stopping = threading.Event()
        self._storage = storage
        self._catalog = catalog
        self._failed: dict[TopicPartition, int] = {}

    def run(
        self, logs: Sequence[PartitionLog], job: Callable[[Sequence[PartitionLog]], T], now_ms: int
    ) -> tuple[T, ...]:
        """What `job` gives for those of `logs` that it can be done for: all at once if that works, else one by one.

        A log with damaged files is set aside at once, one that fails for another reason after some times.
        """
        if not logs or self.stopping.is_set():
            return ()
        try:
            return (job(logs),)
        except Exception as error:
            if self.stopping.is_set() or not may_be_a_file(error):
                raise
            _log.warning("fold failed, looking for the cause", logs=len(logs), error=str(error))
            bad = self.set_aside(logs, inspection.kept, now_ms)
            left = [log for log in logs if log not in bad]
            if bad:
                return self.run(left, job, now_ms)
            if len(left) > 1:
                return tuple(done for log in left for done in self.run((log,), job, now_ms))
            self._failed_once(left[0], error, now_ms)
            return ()

    def set_aside(
        self,
        logs: Iterable[PartitionLog],
        needs: Callable[[PartitionLog], Slice],
        now_ms: int,
        *,
        publish: bool = False,
    ) -> tuple[PartitionLog, ...]:
        """Quarantines those of `logs` of which anything that they need is damaged or missing; which they are."""
        found = [(log, trouble) for log in logs if (trouble := inspection.damage(self._storage, needs(log)))]
        self._commit(
            [quarantine.set_aside(log, str(trouble), now_ms, publishing=publish) for log, trouble in found], now_ms
        )
        for log, trouble in found:
            _log.error("partition set aside", topic=log.topic, partition=log.partition, error=str(trouble))
        return tuple(log for log, _ in found)

    def retry(self, now_ms: int) -> None:
        """Looks again at the logs whose time has come: what is sound is taken up, the rest waits for longer."""
        actions: list[AnyAction] = []
        for log in quarantine.due(self._catalog.state.logs, now_ms):
            trouble = self._trouble(log)
            actions.append(quarantine.set_aside(log, str(trouble), now_ms) if trouble else quarantine.release(log))
            _log.info("partition looked at again", topic=log.topic, partition=log.partition, sound=trouble is None)
        self._commit(actions, now_ms)

    def release(self, logs: Iterable[PartitionLog], now_ms: int) -> int:
        """Takes up those of `logs` that are set aside; how many. Raises StorageError where one is still damaged."""
        held = [log for log in logs if log.quarantine]
        for log in held:
            if trouble := self._trouble(log):
                raise trouble
        self._commit([quarantine.release(log) for log in held], now_ms)
        return len(held)

    def _trouble(self, log: PartitionLog) -> StorageError | None:
        return inspection.damage(self._storage, inspection.kept(log)) or inspection.damage(
            self._storage, inspection.unpublished(log)
        )

    def _failed_once(self, log: PartitionLog, error: Exception, now_ms: int) -> None:
        """A log that fails alone, with sound files, is set aside once that has happened often enough."""
        count = self._failed.get(log.tp, 0) + 1
        self._failed[log.tp] = count % PATIENCE
        _log.error("fold failed", topic=log.topic, partition=log.partition, times=count, error=str(error))
        if count == PATIENCE:
            self._commit([quarantine.set_aside(log, str(error), now_ms)], now_ms)

    def _commit(self, actions: Sequence[AnyAction], now_ms: int) -> None:
        if actions:
            self._catalog.commit(lambda _: actions, now_ms)


def may_be_a_file(error: BaseException) -> bool:
    """Whether `error` can come from a file that is damaged or missing: the store's, or one of Spark's own."""
    return isinstance(error, StorageError) or not isinstance(error, KeyfoldError)
