"""One bad log must not stop the others: finds whom a failed job concerns, and sets only those aside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import structlog

from compactor import inspection, quarantine
from compactor.actions import AnyAction
from compactor.catalog import Catalog
from compactor.errors import CatalogError, FoldError, FoldFailedError, KeyfoldError, StorageError
from compactor.log import PartitionLog
from compactor.reading import Slice, whole
from compactor.record import TopicPartition
from compactor.storage import Storage

T = TypeVar("T")

PATIENCE: Final = 3
"""So often in a row a log whose files are sound may fail in a fold before it is set aside."""

_log = structlog.get_logger()


class Isolation:
    """Runs jobs over many logs of one catalog; what fails is narrowed down to the logs that it concerns."""

    def __init__(self, storage: Storage, catalog: Catalog) -> None:
        self.stopping = threading.Event()
        self.storage = storage
        self.catalog = catalog
        self._failed: dict[TopicPartition, int] = {}

    def run(
        self,
        logs: Sequence[PartitionLog],
        job: Callable[[Sequence[PartitionLog]], T],
        now_ms: int,
        *,
        asked: bool = False,
    ) -> tuple[T, ...]:
        """What `job` gives for those of `logs` that it can be done for: all at once if that works, else one by one.

        A log with damaged files is set aside at once, one that fails for another reason after some times; where
        somebody `asked` for the job FoldFailedError tells him. Raises StorageError where the store fails and no file is
        damaged: that concerns all.
        """
        if not logs or self.stopping.is_set():
            return ()
        try:
            done = job(logs)
        except Exception as error:
            if self.stopping.is_set() or not _concerns_logs(error):
                raise
            _log.warning("fold failed, looking for the cause", logs=len(logs), error=str(error))
            return self._narrowed(logs, job, now_ms, error, asked=asked)
        for log in logs:
            self._failed.pop(log.tp, None)
        return (done,)

    def _narrowed(
        self,
        logs: Sequence[PartitionLog],
        job: Callable[[Sequence[PartitionLog]], T],
        now_ms: int,
        error: Exception,
        *,
        asked: bool,
    ) -> tuple[T, ...]:
        bad = self.set_aside(logs, inspection.kept, now_ms)
        if bad:
            return self.run([log for log in logs if log not in bad], job, now_ms, asked=asked)
        if isinstance(error, StorageError):
            raise error
        if len(logs) > 1:
            return tuple(done for log in logs for done in self.run((log,), job, now_ms, asked=asked))
        self._failed_once(logs[0], error, now_ms)
        if asked:
            where = f"Connector {self.catalog.state.connector}: the fold of {logs[0].tp} failed: {error}"
            raise FoldFailedError(where, "See the worker's log; nothing was changed.") from error
        return ()

    def set_aside(
        self,
        logs: Iterable[PartitionLog],
        needs: Callable[[PartitionLog], Slice],
        now_ms: int,
        *,
        publish: bool = False,
    ) -> tuple[PartitionLog, ...]:
        """Quarantines those of `logs` of which anything that they need is damaged or missing; which they are.

        Raises StorageError where the store does not answer.
        """
        known: dict[str, bool] = {}
        found = [(log, trouble) for log in logs if (trouble := inspection.damage(self.storage, needs(log), known))]
        self._commit(
            [quarantine.set_aside(log, str(trouble), now_ms, publishing=publish) for log, trouble in found], now_ms
        )
        for log, trouble in found:
            _log.error("partition set aside", topic=log.topic, partition=log.partition, error=str(trouble))
        return tuple(log for log, _ in found)

    def retry(self, now_ms: int) -> None:
        """Looks again at the logs whose time has come: what is sound is taken up, the rest waits for longer."""
        actions: list[AnyAction] = []
        for log in quarantine.due(self.catalog.state.logs, now_ms):
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
        return inspection.damage(self.storage, whole(log))

    def _failed_once(self, log: PartitionLog, error: Exception, now_ms: int) -> None:
        """A log that fails alone, with sound files, is set aside once that has happened often enough."""
        count = self._failed.pop(log.tp, 0) + 1
        _log.error("fold failed", topic=log.topic, partition=log.partition, times=count, error=str(error))
        if count < PATIENCE:
            self._failed[log.tp] = count
        else:
            self._commit([quarantine.set_aside(log, str(error), now_ms)], now_ms)

    def _commit(self, actions: Sequence[AnyAction], now_ms: int) -> None:
        if actions:
            self.catalog.commit(lambda _: actions, now_ms)


def may_be_a_file(error: BaseException) -> bool:
    """Whether `error` can come from a file that is damaged or missing: the store's, or one of Spark's own."""
    return isinstance(error, StorageError) or not isinstance(error, KeyfoldError)


def _concerns_logs(error: BaseException) -> bool:
    """Whether a fold's `error` can be one log's alone."""
    return may_be_a_file(error) or isinstance(error, FoldError | CatalogError)
