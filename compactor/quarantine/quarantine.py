"""Narrows the failure of a job down to the partitions that it concerns, and keeps only those in quarantine.

Kafka marks such a partition uncleanable until the broker is restarted (`LogCleanerManager.markPartitionUncleanable`);
here it is verified again and again, and the other partitions go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import structlog

from compactor import backoff
from compactor.catalog.catalog import Catalog
from compactor.errors import (
    CatalogError,
    DamagedError,
    FoldError,
    FoldFailedError,
    KeyfoldError,
    OutOfRoomError,
    StoppedError,
    StorageError,
)
from compactor.model.actions import AnyAction, Quarantine, Release
from compactor.model.log import PartitionLog, Quarantined
from compactor.model.record import TopicPartition
from compactor.quarantine import verify
from compactor.runs.scan import OffsetRange, whole
from compactor.spark.errors import briefly
from compactor.spark.job_errors import is_cancelled, is_process_failure
from compactor.storage.base import Storage

T = TypeVar("T")

MAX_FAILURES: Final = 3
"""How many failures of its fold in a row quarantine a log with sound files."""

_log = structlog.get_logger()


class QuarantineManager:
    """Runs jobs over logs of one catalog, and quarantines the logs that make a job fail.

    Once `stop` is set no job begins here, and a failure is taken for the stop's doing: no log is quarantined.
    """

    def __init__(
        self,
        catalog: Catalog,
        stop: threading.Event,
        find_damage: Callable[
            [Storage, Iterable[OffsetRange], Callable[[], bool]], Sequence[StorageError | None]
        ] = verify.find_damage,
    ) -> None:
        self._find_damage = find_damage
        self._catalog = catalog
        self._stop = stop
        # By partition: failures of its job in a row, with sound files; 0 again after one that succeeds.
        self._failures: dict[TopicPartition, int] = {}

    def run(
        self,
        logs: Sequence[PartitionLog],
        job: Callable[[Sequence[PartitionLog]], T],
        now_ms: int,
        *,
        asked: bool = False,
        together: bool = False,
    ) -> tuple[T, ...]:
        """Runs `job` over all `logs` at once; if that fails, over each log alone. Returns the results.

        `together`: over all of them or none, and none if one of them has damaged files.

        A log with damaged files is quarantined at once. A log that fails for another reason is quarantined after
        MAX_FAILURES; if the job is on command (`asked`), that raises FoldFailedError as well.

        Raises StorageError if the storage fails and no file is damaged, FoldFailedError if each of several logs
        fails, as the cause then lies outside them.
        """
        if not logs or self._stop.is_set():
            return ()
        try:
            done = job(logs)
        except Exception as error:
            if self._stop.is_set() or not _concerns_logs(error):
                raise
            _log.warning("fold failed, looking for the cause", logs=len(logs), error=briefly(error))
            if together:
                if not self._damaged(logs, error, now_ms):  # that quarantines those with damaged files
                    self._failed_alone([(log, error) for log in logs], now_ms, asked=asked)
                return ()
            return self._narrow(logs, job, now_ms, error, asked=asked)
        for log in logs:
            self._failures.pop(log.tp, None)
        return (done,)

    def until_stopped(self, steps: Iterable[T]) -> Iterator[T]:
        """Yields `steps` one by one. Raises StoppedError if a stop comes before a step."""
        for step in steps:
            if self._stop.is_set():
                raise StoppedError("A stop came between two steps.", "They are done after the next start.")
            yield step

    @property
    def is_stopping(self) -> bool:
        """Whether a stop is under way, which may be the cause of any error."""
        return self._stop.is_set()

    def suspects_damage(self, error: BaseException) -> bool:
        """Returns whether `error` is a reason to verify files: a file can cause it, and no stop is under way."""
        return not self.is_stopping and may_be_damage(error)

    def quarantine_damaged(
        self,
        logs: Iterable[PartitionLog],
        needs: Callable[[PartitionLog], OffsetRange],
        now_ms: int,
        *,
        publishing: bool = False,
    ) -> tuple[PartitionLog, ...]:
        """Verifies the offsets that each log `needs`, and quarantines and returns the logs with damaged files.

        `publishing`: publishing of these logs stops as well. Raises StorageError if the storage does not answer,
        StoppedError if a stop comes first.
        """
        damaged = [(log, damage) for log, damage in self._verified(logs, needs) if damage]
        self._commit(
            [quarantine_of(log, str(damage), now_ms, publishing=publishing) for log, damage in damaged], now_ms
        )
        for log, damage in damaged:
            _log.error("partition quarantined", topic=log.topic, partition=log.partition, error=str(damage))
        return tuple(log for log, _ in damaged)

    def recheck(self, now_ms: int) -> None:
        """Verifies the quarantined logs that are due for it: releases those that are sound, keeps the others longer."""
        actions: list[AnyAction] = []
        for log, damage in self._verified(due_for_recheck(self._catalog.state.logs, now_ms), whole):
            actions.append(quarantine_of(log, str(damage), now_ms) if damage else release_of(log))
            _log.info("partition verified again", topic=log.topic, partition=log.partition, sound=damage is None)
        self._commit(actions, now_ms)

    def release(self, logs: Iterable[PartitionLog], now_ms: int) -> int:
        """Releases those of `logs` that are in quarantine, on command. Returns how many.

        Raises StorageError, and releases none, if a file of one is still damaged.
        """
        held = [log for log in logs if log.quarantine]
        for _, damage in self._verified(held, whole):
            if damage:
                raise damage
        self._commit([release_of(log) for log in held], now_ms)
        return len(held)

    def _narrow(
        self,
        logs: Sequence[PartitionLog],
        job: Callable[[Sequence[PartitionLog]], T],
        now_ms: int,
        error: Exception,
        *,
        asked: bool,
    ) -> tuple[T, ...]:
        damaged = self._damaged(logs, error, now_ms)
        if damaged:
            return self.run([log for log in logs if log not in damaged], job, now_ms, asked=asked)
        if len(logs) > 1:
            return self._one_by_one(logs, job, now_ms, asked=asked)
        self._failed_alone([(logs[0], error)], now_ms, asked=asked)
        return ()

    def _one_by_one(
        self, logs: Sequence[PartitionLog], job: Callable[[Sequence[PartitionLog]], T], now_ms: int, *, asked: bool
    ) -> tuple[T, ...]:
        """Runs `job` for each log alone. Raises FoldFailedError if none of several succeeds."""
        done: list[T] = []
        failed: list[tuple[PartitionLog, Exception]] = []
        for log in logs:
            if self._stop.is_set():
                return tuple(done)
            try:
                done.append(job((log,)))
                self._failures.pop(log.tp, None)
            except Exception as error:
                if self._stop.is_set() or not _concerns_logs(error):
                    raise
                if not self._damaged((log,), error, now_ms):
                    failed.append((log, error))
        if not done and len(failed) > 1 and not any(log.tp in self._failures for log, _ in failed):
            cause = failed[0][1]
            raise FoldFailedError(
                f"Connector {self._catalog.state.connector}: the folds of {len(failed)} partitions failed, each by "
                f"itself, and all their files are sound: {briefly(cause)}",
                "See whether Spark has room (spark.local.dir, memory), and the worker's log; nothing was changed.",
            ) from cause
        self._failed_alone(failed, now_ms, asked=asked)
        return tuple(done)

    def _damaged(self, logs: Sequence[PartitionLog], error: Exception, now_ms: int) -> tuple[PartitionLog, ...]:
        """Quarantines and returns those of `logs` with damaged files, if these can cause `error`.

        Raises `error` if it is the storage's and no file is damaged.
        """
        damaged = self.quarantine_damaged(logs, verify.published_range, now_ms) if may_be_damage(error) else ()
        if not damaged and isinstance(error, StorageError):
            raise error
        return damaged

    def _verified(
        self, logs: Iterable[PartitionLog], needs: Callable[[PartitionLog], OffsetRange]
    ) -> list[tuple[PartitionLog, StorageError | None]]:
        """Returns each log with the first damage of what it needs; None if all of it can be read."""
        listed = tuple(logs)
        damages = self._find_damage(self._catalog.storage, map(needs, listed), self._stop.is_set)
        return list(zip(listed, damages, strict=True))

    def _failed_alone(self, failed: Sequence[tuple[PartitionLog, Exception]], now_ms: int, *, asked: bool) -> None:
        """Counts the failures of logs with sound files. Raises FoldFailedError if a command `asked` for the job."""
        for log, error in failed:
            self._count_failure(log, error, now_ms)
        for log, error in failed if asked else ():
            where = f"Connector {self._catalog.state.connector}: the fold of {log.tp} failed: {briefly(error)}"
            raise FoldFailedError(where, "See the worker's log; nothing was changed.") from error

    def _count_failure(self, log: PartitionLog, error: Exception, now_ms: int) -> None:
        """Counts a failure of a log alone, with sound files; quarantines it at MAX_FAILURES in a row."""
        count = self._failures.pop(log.tp, 0) + 1
        _log.error("fold failed", topic=log.topic, partition=log.partition, times=count, error=briefly(error))
        if count < MAX_FAILURES:
            self._failures[log.tp] = count
        else:
            self._commit([quarantine_of(log, briefly(error), now_ms)], now_ms)

    def _commit(self, actions: Sequence[AnyAction], now_ms: int) -> None:
        if actions:
            self._catalog.commit(lambda _: actions, now_ms)


def quarantine_of(log: PartitionLog, error: str, now_ms: int, *, publishing: bool = False) -> Quarantine:
    """Returns the action that puts `log` into quarantine, or keeps it there for longer."""
    before = log.quarantine
    failures = before.failures + 1 if before else 1
    quarantined = Quarantined(
        since_ms=before.since_ms if before else now_ms,
        retry_ms=backoff.next_try_ms(failures, now_ms),
        failures=failures,
        error=error,
        publishing=publishing or (before is not None and before.publishing),
    )
    return Quarantine(topic=log.topic, partition=log.partition, quarantined=quarantined)


def release_of(log: PartitionLog) -> Release:
    """Returns the action that ends the quarantine of `log`."""
    return Release(topic=log.topic, partition=log.partition)


def due_for_recheck(logs: Iterable[PartitionLog], now_ms: int) -> tuple[PartitionLog, ...]:
    """Returns the quarantined logs that are to be verified again at `now_ms`."""
    return tuple(log for log in logs if log.quarantine and not backoff.waits(log.quarantine.retry_ms, now_ms))


def may_be_damage(error: BaseException) -> bool:
    """Returns whether a damaged or missing file can cause `error`: one of the storage's errors, or of Spark's own."""
    if isinstance(error, KeyfoldError):
        return isinstance(error, StorageError)
    return not is_cancelled(error) and not is_process_failure(error)


def _concerns_logs(error: BaseException) -> bool:
    """Returns whether a single log can cause `error` of a fold."""
    if isinstance(error, KeyfoldError):
        concerns_one = isinstance(error, StorageError | FoldError | CatalogError | OutOfRoomError)
        return concerns_one and not isinstance(error, DamagedError)
    return not is_cancelled(error)
