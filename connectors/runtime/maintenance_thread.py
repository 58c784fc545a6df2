"""The thread of one connector in which everything behind publishing happens: folds, snapshots, requests, vacuum.

It has a Spark pool of its own beside the micro-batches', and its jobs form a group that a stop can break off:
whatever was not committed never happened, and the next vacuum removes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct

from compactor.errors import SnapshotError, SnapshotStorageError
from compactor.maintenance import Maintenance
from connectors.clock import Clock
from connectors.runtime.request_handler import RequestHandler

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS: Final = 0.5
FIRST_VACUUM_MS: Final = 60_000
VACUUM_EVERY_MS: Final = 600_000
VACUUM_GRACE_MS: Final = 3_600_000
SNAPSHOT_RETRY_SECONDS: Final = 60.0
POOL: Final = "fold"

_log = structlog.get_logger()


class MaintenanceSchedule(Struct, frozen=True, kw_only=True):
    """`log.cleaner.initial.delay.ms` and `log.cleaner.backoff.ms`: the first round, and the next after an idle one.

    `snapshots`: whether they are taken by snapshot.interval.ms; on command they always are.
    """

    initial_delay_ms: int
    backoff_ms: int
    snapshots: bool = True


class MaintenanceThread:
    """Runs a connector's upkeep. `failure` is what ended it, None while it runs or when it was stopped."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        upkeep: Maintenance,
        answers: RequestHandler,
        running: Callable[[], Container[str]],
        clock: Clock,
        rhythm: MaintenanceSchedule,
    ) -> None:
        self.failure: Exception | None = None
        self._context = spark.sparkContext
        self._name = name
        self._upkeep = upkeep
        self._answers = answers
        self._running = running
        self._clock = clock
        self._rhythm = rhythm
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{name}-upkeep", daemon=True)
        self._next_round = clock.monotonic() + rhythm.initial_delay_ms / 1000
        self._next_snapshot = clock.monotonic()
        self._next_vacuum = clock.monotonic() + FIRST_VACUUM_MS / 1000  # short lives leave files behind as well

    def start(self) -> None:
        """Begins; call it once."""
        self._thread.start()

    def stop(self, patient: Callable[[], bool]) -> None:
        """Ends the thread: after what it does now while one is `patient`, else breaking that off. May be repeated."""
        self._stop.set()
        while self._thread.is_alive():
            if not patient():
                self._upkeep.interrupt()
                self._context.cancelJobGroup(self._group)  # again: a job may have begun just after
            self._thread.join(POLL_SECONDS)

    @property
    def _group(self) -> str:
        return f"keyfold-upkeep-{self._name}"

    def _run(self) -> None:
        with structlog.contextvars.bound_contextvars(connector=self._name):
            self._guarded(self._work)

    def _work(self) -> None:
        self._context.setJobGroup(self._group, f"{self._name}: folds and snapshots", interruptOnCancel=False)
        self._context.setLocalProperty("spark.scheduler.pool", POOL)
        while not self._clock.wait(POLL_SECONDS, self._stop):
            self._turn()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  # the pipeline raises it in its own thread
            if self._stop.is_set():
                _log.debug("broken off by the stop", exc_info=error)
            else:
                self.failure = error

    def _turn(self) -> None:
        self._answers.answer()
        self._snapshot()
        if self._clock.monotonic() >= self._next_round:
            busy = bool(self._upkeep.round(self._clock.now_ms()))
            self._next_round = self._clock.monotonic() + (0 if busy else self._rhythm.backoff_ms / 1000)
        if self._clock.monotonic() >= self._next_vacuum:
            self._upkeep.vacuum(self._clock.now_ms(), VACUUM_GRACE_MS, self._running)
            self._next_vacuum = self._clock.monotonic() + VACUUM_EVERY_MS / 1000

    def _snapshot(self) -> None:
        """A snapshot when one is due; where there was nothing to take one of, a minute passes before the next try."""
        now_ms = self._clock.now_ms()
        waiting = not self._rhythm.snapshots or self._clock.monotonic() < self._next_snapshot
        if waiting or not self._upkeep.snapshot_due(now_ms):
            return
        try:
            taken = self._upkeep.snapshot(now_ms, asked=False)
        except (
            SnapshotStorageError,
            SnapshotError,
        ) as error:  # folds, publishing and vacuum need no snapshots, and go on
            self._upkeep.snapshot_failed(error, self._clock.now_ms())
            taken = ()
        if not taken:
            self._next_snapshot = self._clock.monotonic() + SNAPSHOT_RETRY_SECONDS
