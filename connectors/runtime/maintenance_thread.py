"""The thread of one connector that does everything after publishing: folds, snapshots, requests, vacuum.

It has a Spark pool of its own, apart from the micro-batches'. What a stop drops was not committed and never happened;
the next vacuum removes its files.
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
from connectors.spark.cancellable_job import CancellableJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_MS: Final = 500
"""The shortest time between two turns, unless a request waits."""
LOOK_MS: Final = 5_000
"""The longest one: so often it asks whether a snapshot is due. Many idle threads that look twice a second cost."""
FIRST_VACUUM_MS: Final = 60_000
VACUUM_EVERY_MS: Final = 600_000
VACUUM_GRACE_MS: Final = 3_600_000
SNAPSHOT_RETRY_MS: Final = 60_000
POOL: Final = "fold"


class MaintenanceSchedule(Struct, frozen=True, kw_only=True):
    """When rounds of maintenance run: `log.cleaner.initial.delay.ms`, and `log.cleaner.backoff.ms` after an idle one.

    `snapshots`: whether they are taken by snapshot.interval.ms; on command they always are.
    """

    initial_delay_ms: int
    backoff_ms: int
    snapshots: bool = True


class MaintenanceThread(CancellableJob):
    """Runs a connector's maintenance. `failure` is what ended it, None while it runs or when it was stopped."""

    def __init__(
        self,
        spark: SparkSession,
        connector: str,
        maintenance: Maintenance,
        requests: RequestHandler,
        running: Callable[[], Container[str]],
        clock: Clock,
        schedule: MaintenanceSchedule,
    ) -> None:
        with structlog.contextvars.bound_contextvars(connector=connector):
            super().__init__(spark, f"maintenance-{connector}", self._run_turns, POOL)
        self._maintenance = maintenance
        self._requests = requests
        self._running = running
        self._clock = clock
        self._schedule = schedule
        # Set by a request and by a stop: the next turn begins at once.
        self._woken = threading.Event()
        # When each is due, on the monotonic clock.
        self._next_round_ms = clock.monotonic_ms() + schedule.initial_delay_ms
        self._next_snapshot_ms = clock.monotonic_ms()
        self._next_vacuum_ms = clock.monotonic_ms() + FIRST_VACUUM_MS  # short runs leave files as well

    def interrupt(self) -> None:
        """Interrupts the fold, snapshot or vacuum that runs now."""
        self._maintenance.interrupt()
        super().interrupt()

    def stop(self) -> None:
        """Asks the thread to end after what it does now; one that waits ends at once."""
        super().stop()
        self.wake()

    def wake(self) -> None:
        """Has the next turn begin at once: a request waits."""
        self._woken.set()

    def _run_turns(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._clock.wait_ms(self._pause_ms(), self._woken)
            self._woken.clear()  # before the turn: what comes meanwhile gets another one
            if not stop.is_set():
                self._turn()

    def _pause_ms(self) -> int:
        """Returns how long to wait until the next turn: until the next thing is due, within bounds."""
        left_ms = min(self._next_round_ms, self._next_vacuum_ms) - self._clock.monotonic_ms()
        return min(max(left_ms, POLL_MS), LOOK_MS)

    def _turn(self) -> None:
        self._requests.answer_all()
        self._take_snapshot()
        if self._clock.monotonic_ms() >= self._next_round_ms:
            busy = bool(self._maintenance.cleaner.round(self._clock.now_ms()))
            self._next_round_ms = self._clock.monotonic_ms() + (0 if busy else self._schedule.backoff_ms)
        if self._clock.monotonic_ms() >= self._next_vacuum_ms:
            self._maintenance.vacuum(self._clock.now_ms(), VACUUM_GRACE_MS, self._running)
            self._next_vacuum_ms = self._clock.monotonic_ms() + VACUUM_EVERY_MS

    def _take_snapshot(self) -> None:
        """Takes snapshots when one is due, of topics that have changed; what cannot be taken is tried after a minute.

        Many connectors that are due at once find the turn of typed snapshots taken: each tries again as soon as it is
        free. A minute later they would all meet again, and one of them be served. One that held the turn for a minute
        leaves it to them for a minute.
        """
        now_ms = self._clock.now_ms()
        waiting = not self._schedule.snapshots or self._clock.monotonic_ms() < self._next_snapshot_ms
        if waiting or not self._maintenance.snapshots.due(now_ms):
            return
        began_ms, snapshots = self._clock.monotonic_ms(), self._maintenance.snapshots
        try:
            taken = self._maintenance.snapshot(now_ms, asked=False, again=False)
            is_over = bool(taken) or not snapshots.due(self._clock.now_ms())
        except (SnapshotStorageError, SnapshotError) as error:  # folds, publishing and vacuum go on without snapshots
            snapshots.failed(error, self._clock.now_ms())
            taken, is_over = (), False
        ended_ms = self._clock.monotonic_ms()
        if taken and snapshots.typed is not None:
            self._next_snapshot_ms = ended_ms + (ended_ms - began_ms)
        elif not is_over and not snapshots.lost_turn:
            self._next_snapshot_ms = ended_ms + SNAPSHOT_RETRY_MS
