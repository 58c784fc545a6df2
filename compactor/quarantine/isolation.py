"""One bad log must not stop the others: finds whom a failed job concerns, and sets only those aside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import structlog

from compactor.catalog.catalog import Catalog
from compactor.errors import (
    CatalogError,
    DamagedError,
    FoldError,
    FoldFailedError,
    KeyfoldError,
    StoppedError,
    StorageError,
)
from compactor.model.actions import AnyAction
from compactor.model.log import PartitionLog
from compactor.model.record import TopicPartition
from compactor.quarantine import quarantine
from compactor.quarantine import verify as inspection
from compactor.runs.scan import OffsetRange, whole
from compactor.spark.errors import briefly, broken_off, of_its_process
from compactor.storage.base import Storage

T = TypeVar("T")

PATIENCE: Final = 3
"""So often in a row a log whose files are sound may fail in a fold before it is set aside."""

_log = structlog.get_logger()


class Isolation:
    """Runs jobs over many logs of one catalog; what fails is narrowed down to the logs that it concerns.

    Once `stopping` is set, nothing begins here, and what fails is nobody's fault.
    """

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
        damaged, FoldFailedError where each of several logs fails: that concerns all.
        """
        if not logs or self.stopping.is_set():
            return ()
        try:
            done = job(logs)
        except Exception as error:
            if self.stopping.is_set() or not _concerns_logs(error):
                raise
            _log.warning("fold failed, looking for the cause", logs=len(logs), error=briefly(error))
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
        bad = self._damaged(logs, error, now_ms)
        if bad:
            return self.run([log for log in logs if log not in bad], job, now_ms, asked=asked)
        if len(logs) > 1:
            return self._one_by_one(logs, job, now_ms, asked=asked)
        self._failed_alone([(logs[0], error)], now_ms, asked=asked)
        return ()

    def _one_by_one(
        self, logs: Sequence[PartitionLog], job: Callable[[Sequence[PartitionLog]], T], now_ms: int, *, asked: bool
    ) -> tuple[T, ...]:
        """The job for each log alone. Where none of several succeeds it is not the logs: then it raises."""
        done: list[T] = []
        failed: list[tuple[PartitionLog, Exception]] = []
        for log in logs:
            if self.stopping.is_set():
                return tuple(done)
            try:
                done.append(job((log,)))
                self._failed.pop(log.tp, None)
            except Exception as error:
                if self.stopping.is_set() or not _concerns_logs(error):
                    raise
                if not self._damaged((log,), error, now_ms):
                    failed.append((log, error))
        if not done and len(failed) > 1 and not any(log.tp in self._failed for log, _ in failed):
            raise self._systemic(failed[0][1], len(failed)) from failed[0][1]
        self._failed_alone(failed, now_ms, asked=asked)
        return tuple(done)

    def _damaged(self, logs: Sequence[PartitionLog], error: Exception, now_ms: int) -> tuple[PartitionLog, ...]:
        """Those of `logs` whose damaged files can have caused `error`; raises it where it is the store's own."""
        bad = self.set_aside(logs, inspection.kept, now_ms) if may_be_a_file(error) else ()
        if not bad and isinstance(error, StorageError):
            raise error
        return bad

    def _systemic(self, error: Exception, logs: int) -> FoldFailedError:
        return FoldFailedError(
            f"Connector {self.catalog.state.connector}: the folds of {logs} partitions failed, each by itself, and all "
            f"their files are sound: {briefly(error)}",
            "See whether Spark has room (spark.local.dir, memory), and the worker's log; nothing was changed.",
        )

    def until_stopped(self, steps: Iterable[T]) -> Iterator[T]:
        """`steps`, one after the other; StoppedError as soon as a stop comes."""
        for step in steps:
            if self.stopping.is_set():
                raise StoppedError("A stop came between two steps.", "They are done after the next start.")
            yield step

    def blames(self, error: BaseException) -> bool:
        """Whether files should be looked at for `error`: not what a stop breaks off, nor what no file can cause."""
        return not self.stopping.is_set() and may_be_a_file(error)

    def set_aside(
        self,
        logs: Iterable[PartitionLog],
        needs: Callable[[PartitionLog], OffsetRange],
        now_ms: int,
        *,
        publish: bool = False,
    ) -> tuple[PartitionLog, ...]:
        """Quarantines those of `logs` of which anything that they need is damaged or missing; which they are.

        Raises StorageError where the store does not answer, StoppedError where a stop came first.
        """
        found = [(log, trouble) for log, trouble in self._troubles(logs, needs) if trouble]
        self._commit(
            [quarantine.set_aside(log, str(trouble), now_ms, publishing=publish) for log, trouble in found], now_ms
        )
        for log, trouble in found:
            _log.error("partition set aside", topic=log.topic, partition=log.partition, error=str(trouble))
        return tuple(log for log, _ in found)

    def retry(self, now_ms: int) -> None:
        """Looks again at the logs whose time has come: what is sound is taken up, the rest waits for longer."""
        actions: list[AnyAction] = []
        for log, trouble in self._troubles(quarantine.due(self.catalog.state.logs, now_ms), whole):
            actions.append(quarantine.set_aside(log, str(trouble), now_ms) if trouble else quarantine.release(log))
            _log.info("partition looked at again", topic=log.topic, partition=log.partition, sound=trouble is None)
        self._commit(actions, now_ms)

    def release(self, logs: Iterable[PartitionLog], now_ms: int) -> int:
        """Takes up those of `logs` that are set aside; how many. Raises StorageError where one is still damaged."""
        held = [log for log in logs if log.quarantine]
        for _, trouble in self._troubles(held, whole):
            if trouble:
                raise trouble
        self._commit([quarantine.release(log) for log in held], now_ms)
        return len(held)

    def _troubles(
        self, logs: Iterable[PartitionLog], needs: Callable[[PartitionLog], OffsetRange]
    ) -> list[tuple[PartitionLog, StorageError | None]]:
        found = tuple(logs)
        troubles = inspection.damage(self.storage, map(needs, found), self.stopping.is_set)
        return list(zip(found, troubles, strict=True))

    def _failed_alone(self, failed: Sequence[tuple[PartitionLog, Exception]], now_ms: int, *, asked: bool) -> None:
        for log, error in failed:
            self._failed_once(log, error, now_ms)
        for log, error in failed if asked else ():
            where = f"Connector {self.catalog.state.connector}: the fold of {log.tp} failed: {briefly(error)}"
            raise FoldFailedError(where, "See the worker's log; nothing was changed.") from error

    def _failed_once(self, log: PartitionLog, error: Exception, now_ms: int) -> None:
        """A log that fails alone, with sound files, is set aside once that has happened often enough."""
        count = self._failed.pop(log.tp, 0) + 1
        _log.error("fold failed", topic=log.topic, partition=log.partition, times=count, error=briefly(error))
        if count < PATIENCE:
            self._failed[log.tp] = count
        else:
            self._commit([quarantine.set_aside(log, briefly(error), now_ms)], now_ms)

    def _commit(self, actions: Sequence[AnyAction], now_ms: int) -> None:
        if actions:
            self.catalog.commit(lambda _: actions, now_ms)


def may_be_a_file(error: BaseException) -> bool:
    """Whether `error` can come from a file that is damaged or missing: the store's, or one of Spark's own."""
    if isinstance(error, KeyfoldError):
        return isinstance(error, StorageError)
    return not broken_off(error) and not of_its_process(error)


def _concerns_logs(error: BaseException) -> bool:
    """Whether a fold's `error` can be one log's alone."""
    if isinstance(error, KeyfoldError):
        return isinstance(error, StorageError | FoldError | CatalogError) and not isinstance(error, DamagedError)
    return not broken_off(error)
