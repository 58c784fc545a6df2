"""Stops and pauses a connector and its Spark jobs.

pause   nothing more is taken in or published; what the run holds is kept
stop    nothing new begins; the step that runs now may finish
drain   a stop that lets a running fold finish as well
cancel  what runs now ends at once: what it has not committed never happened
abort   a Kafka transaction that a cancelled publish left open is ended
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from connectors.clock import Clock
from connectors.threads import CancellableThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StopToken(threading.Event):
    """Event that is set when a connector is to stop. `drain`: a running fold may finish as well.

    `cancel_at`, in monotonic seconds, is when the step that runs now is cancelled; None: it is not. `woken` is set
    with it, and by `wake`: who waits for that one sees at once what else has happened to the connector. While `paused`
    is set, the connector takes nothing in and publishes nothing.
    """

    drain: bool = False
    cancel_at: float | None = None

    def __init__(self, paused: threading.Event | None = None) -> None:
        super().__init__()
        self.woken = threading.Event()
        self.paused = paused or threading.Event()

    def set(self) -> None:
        """Sets the event, and `woken` after it."""
        super().set()
        self.woken.set()

    def wake(self) -> None:
        """Wakes the threads that wait for `woken`; stops nothing."""
        self.woken.set()

    def is_set_within(self, seconds: float, clock: Clock) -> bool:
        """Waits until something wakes it, for at most `seconds`; returns whether that is the stop."""
        clock.wait(seconds, self.woken)
        self.woken.clear()  # before the caller looks: what wakes it from here on is seen with the next wait
        return self.is_set()

    def stop(self, *, drain: bool = False, cancel_at: float | None = None) -> None:
        """Stops the connector. Of several stops, one without `drain` and the earliest `cancel_at` count."""
        self.drain = drain and (self.drain or not self.is_set())
        self.cancel_at = min((at for at in (self.cancel_at, cancel_at) if at is not None), default=None)
        self.set()

    def is_cancelled(self, monotonic: float) -> bool:
        """Returns whether a step that still runs at `monotonic` (seconds) is to be cancelled."""
        return self.is_set() and self.cancel_at is not None and monotonic >= self.cancel_at


class RunStops:
    """Stops one connector: `stop` ends it for good, `restart` ends only its run, which another one follows.

    `run` is the token of the run that is under way, or of the wait after it; `again`: that run was restarted. `paused`
    holds for all of its runs. Safe to call from any thread.
    """

    def __init__(self) -> None:
        self.paused = threading.Event()
        self.run = StopToken(self.paused)
        self._connector = StopToken()
        self.again = False
        self._lock = threading.Lock()

    def stop(self, *, drain: bool = False, cancel_at: float | None = None) -> None:
        """Stops the connector, and its run with it."""
        with self._lock:
            for token in (self._connector, self.run):
                token.stop(drain=drain, cancel_at=cancel_at)

    def restart(self, *, cancel_at: float) -> None:
        """Stops the run; another one is to follow at once."""
        with self._lock:
            self.again = True
            self.run.stop(cancel_at=cancel_at)

    def begin_run(self) -> StopToken:
        """Returns the token of the run that begins now, which is set already where the connector was stopped."""
        with self._lock:
            self.again = False
            self.run = StopToken(self.paused)
            if self._connector.is_set():
                self.run.stop(drain=self._connector.drain, cancel_at=self._connector.cancel_at)
            return self.run

    @property
    def restarting(self) -> bool:
        """Whether another run is to follow at once."""
        return self.again and not self._connector.is_set()


class CancellableJob(CancellableThread):
    """A thread whose Spark jobs form a group, in the scheduler pool `pool`; an interrupt cancels that group."""

    def __init__(
        self, spark: SparkSession, name: str, work: Callable[[threading.Event], object], pool: str | None = None
    ) -> None:
        super().__init__(name, partial(self._in_group, work))
        self._context = spark.sparkContext
        self._name = name
        self._pool = pool

    def interrupt(self) -> None:
        """Cancels the Spark jobs that run now."""
        with suppress(Exception):  # a JVM that has ended cancels nothing, and runs nothing either
            self._context.cancelJobGroup(self._group)

    @property
    def _group(self) -> str:
        return f"keyfold-{self._name}"

    def _in_group(self, work: Callable[[threading.Event], object], stopped: threading.Event) -> None:
        self._context.setJobGroup(self._group, self._name, interruptOnCancel=False)
        if self._pool is not None:
            self._context.setLocalProperty("spark.scheduler.pool", self._pool)
        work(stopped)
