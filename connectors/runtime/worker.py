"""A worker: many connectors in one process and one SparkSession, each in a thread of its own."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import StrEnum
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct

from compactor.errors import KeyfoldError, StorageError
from compactor.spark.errors import briefly
from connectors import errors
from connectors.clock import Clock
from connectors.config.worker import WorkerConfig
from connectors.data.collector import leave_out_what_lives
from connectors.errors import NoThreadError, SparkGoneError
from connectors.kafka.access import KafkaAccess
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.probe import BrokerProbe
from connectors.progress.observer import Interval, Observer
from connectors.runtime.herder import Herder
from connectors.runtime.shared_query import SharedQuery
from connectors.runtime.specs.connector_files import ConnectorFiles
from connectors.runtime.stop import Stop
from connectors.runtime.supervisor import RunContext
from connectors.signals import handled
from connectors.spark import session
from connectors.spark.session import SparkStart
from connectors.threads import CancellableThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger()

STEP_SHARE: Final = 0.6
"""The part of task.shutdown.graceful.timeout.ms in which a step may still finish; after it the step is cancelled."""
JOIN_SHARE: Final = 0.8
"""The part in which connectors and the query end. In the rest Spark is closed, and locks are given back."""
SWITCH_S: Final = 0.001
"""How long (s) a thread that computes in Python keeps others waiting; Python's own is 5 ms, with which 20 waits next to
one such thread, as a small publish has, took twice as long. Less costs more than it gives: with 0.2 ms look-ups were
502 and 523 a second, with this 581, and the row `many` was 1.04 s at p50 for 0.90."""
LEAST_MS: Final = 1_000
"""Spark has at least this long to close, and so have locks, however long the connectors took."""


class WorkerTimings(Struct, frozen=True):
    """How long a worker waits, and how often it looks."""

    look_ms: int = 500
    """Between two looks at Spark's start, its JVM and the query. A signal or an ended connector is seen at once."""
    still_starting_ms: int = 5_000
    """How often it is said that Spark is still starting: after ten silent seconds people take a program for hung."""
    leave_ms: int = 3_000
    """How long a start of Spark that is not needed any more may take to end."""
    reload_ms: int = 5_000
    """After so long the storage is asked again what connectors of new files are to be, if it did not answer."""


class WorkerParts(Struct, frozen=True):
    """What a worker makes and asks while it runs, and its timings; a test gives others."""

    query: Callable[..., SharedQuery] = SharedQuery
    kafka: KafkaAccess = KafkaAccess()
    timings: WorkerTimings = WorkerTimings()
    # Called once, when all is there but connectors: these may go, and then nothing of them is to stay.
    settle: Callable[[], None] = leave_out_what_lives


class Health(StrEnum):
    """How the worker itself is, whatever its connectors are (KIP-1017)."""

    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


class Worker:
    """Runs the connectors of `herder` until all have ended or the process gets a signal to stop.

    `abandoned` names what did not end in its time: the process then has to end without waiting for its threads.
    """

    def __init__(
        self,
        config: WorkerConfig,
        herder: Herder,
        clock: Clock,
        observer: Observer,
        spark: SparkStart,
        files: ConnectorFiles | None = None,
        parts: WorkerParts | None = None,
    ) -> None:
        self.abandoned: list[str] = []
        self.health = Health.STARTING
        self._config = config
        self._herder = herder
        self._files = files
        self._parts = parts or WorkerParts()
        self._timings = self._parts.timings
        # Whether it goes on if no connector runs, as others may come; set by `run`.
        self._lives_on = False
        self._clock = clock
        self._observer = observer
        self._spark = spark
        self._graceful_ms = config.task_shutdown_graceful_timeout_ms
        self._stop = Stop()
        # Whether it ends as all of its connectors were taken over: a restart over REST forgets what they ended with.
        self._is_fenced = False
        # Whether SIGINT has come: `--once` ends with 130 then.
        self._interrupted = False
        # Set by SIGHUP and by a changed folder; the worker's own thread takes it.
        self._reload = threading.Event()
        self._reloading: CancellableThread | None = None
        """Reads connector files again, as disk, storage and what users write in them are waited for; one at a time."""
        self._gone: KeyfoldError | None = None
        # When (monotonic ms) all has to be over; None as long as it does not end.
        self._until_ms: int | None = None
        herder.changed = self._stop.wake

    def run(self, *, once: bool, lives_on: bool = False) -> int:
        """Runs until done (`once`), stopped by SIGTERM or SIGINT, or every connector has ended; returns the exit code.

        If it `lives_on`, it goes on although no connector runs: others may come.

        It is 1 if Spark's JVM has ended: a service manager then starts the worker again. Ctrl-C ends a running
        worker with 0; before `once` is done with 130, as any other command.
        SIGHUP restarts the connectors with a changed file, and those that are FAILED.
        """
        wanted = {signal.SIGTERM: self.on_stop, signal.SIGINT: self.on_stop, signal.SIGHUP: lambda *_: self.reload()}
        self._lives_on = lives_on
        sys.setswitchinterval(SWITCH_S)
        with handled(wanted):
            self._herder.take_locks()
            try:
                spark = self._session(once=once)
                if spark is not None:
                    self._run(spark, once=once)
            finally:
                if self._reloading is not None:
                    self._reloading.stop()
                errors_found = self._herder.release(self._locks_ms())
                if self._herder.is_releasing:
                    self._abandon("giving back owner.lock")
        code = errors.EXIT_FENCED if self._is_fenced else outcome([self._gone, *errors_found])
        return errors.EXIT_INTERRUPTED if code == errors.EXIT_OK and once and self._interrupted else code

    def _run(self, spark: SparkSession, *, once: bool) -> None:
        query: SharedQuery | None = None
        try:
            query = self._parts.query(spark, self._clock, connectors=len(self._herder.names()))
            query.start(prepares=once)
            if not self._stop.is_set():  # set if the signal came while Spark was starting
                self._parts.settle()
                self._herder.begin(RunContext(spark, query, once, self._stop.wake, self._herder.configs))
            self._watch(spark, query)
        finally:
            began_ms = self._clock.monotonic_ms()
            self._until_ms = began_ms + self._graceful_ms
            joined_ms = began_ms + round(self._graceful_ms * JOIN_SHARE)
            if query is not None:
                query.begin_stop()
                self._stop_all(began_ms + round(self._graceful_ms * STEP_SHARE), joined_ms)
                if not query.stop(max(0, joined_ms - self._clock.monotonic_ms()) / 1000):
                    self._abandon("the streaming query")
            self._close(spark, (joined_ms + self._until_ms) // 2)

    def _session(self, *, once: bool) -> SparkSession | None:
        """Waits for Spark; returns None if nothing is left to do with it.

        With `once`, brokers that do not answer end the worker, which then does not wait for Spark.
        """
        for name in self._herder.names():
            self._observer.stage(name, "starting Spark")
        probe: BrokerProbe | None = None
        if once and self._herder.names():
            configs = [connector.spec.config for connector in self._herder.connectors()]
            settings = {config.name: ClientSettings.of(self._config, config) for config in configs}
            ask = self._parts.kafka.probe
            probe = BrokerProbe({name: partial(ask, name, its) for name, its in settings.items()})
        begun_ms, said = self._clock.monotonic_ms(), Interval(self._clock, self._timings.still_starting_ms)
        said.begin_pause("Spark")
        _log.info("starting Spark", master=self._config.spark_master)
        while True:
            spark = self._started()
            seconds = round((self._clock.monotonic_ms() - begun_ms) / 1000, 1)
            if spark is not None and (probe is None or probe.has_answer):
                _log.info("Spark is up", seconds=seconds)
                return spark
            if spark is None and said.ready("Spark"):
                _log.info("Spark is still starting", seconds=seconds)
            if self._stop.is_set() or (probe is not None and self._no_broker_answers(probe)):
                break
            if spark is not None:  # only the brokers are waited for
                self._clock.wait_ms(self._timings.look_ms, self._stop)
        self._spark.leave(self._timings.leave_ms / 1000)
        self.abandoned.append("Spark's start")
        return None

    def _started(self) -> SparkSession | None:
        """Returns the session if it starts within `look_ms`, else None; a stop that ends the JVM is no failure."""
        try:
            return self._spark.wait(self._timings.look_ms / 1000)
        except Exception:
            if self._clock.wait_ms(self._timings.look_ms, self._stop):
                return None
            raise

    def _no_broker_answers(self, probe: BrokerProbe) -> bool:
        """Returns whether it is known by now that no broker answers: then every connector has FAILED."""
        silent = probe.silent()
        for name, reason in silent.items():
            self._herder.fail(name, reason)
        return bool(silent)

    def _watch(self, spark: SparkSession, query: SharedQuery) -> None:
        self.health = Health.HEALTHY
        while not self._stop.is_set() and not self._is_over():
            # A connector that has ended or is to change ends this wait as well.
            self._stop.is_set_within(self._timings.look_ms, self._clock)
            if self._lost(spark, query):
                return
            self._begin_reload()
            self._herder.reconcile()

    def _begin_reload(self) -> None:
        """Has the connector files read again, if that was asked for and is not under way."""
        if self._files is None or not self._reload.is_set():
            return
        if self._reloading is None or not self._reloading.is_alive():
            self._reload.clear()
            reloading = CancellableThread("reload", partial(self._reload_files, self._files))
            reloading.when_over(self._stop.wake)
            try:
                reloading.start()
            except NoThreadError:  # tried again at the next look
                self._reload.set()
            else:
                self._reloading = reloading

    def _reload_files(self, files: ConnectorFiles, stop: threading.Event) -> None:
        """Reads the files and takes up what has changed, once the storage says what new connectors are to be."""
        changes = files.reload()
        while not stop.is_set():
            try:
                self._herder.apply(changes)
            except StorageError as error:
                again_in_s = self._timings.reload_ms / 1000
                _log.error("connector files wait for the storage", error=str(error), again_in_s=again_in_s)
                self._clock.wait_ms(self._timings.reload_ms, stop)
            except Exception:  # noqa: BLE001  # a defect here ends no connector
                _log.exception("connector files cannot be taken up")
                return
            else:
                return

    def _is_over(self) -> bool:
        """Returns whether no connector runs, or will by itself; one that waits for more ends only for other owners."""
        if not self._lives_on:
            return not self._herder.is_any_alive()
        self._is_fenced = self._herder.is_fenced()
        return self._is_fenced

    def _lost(self, spark: SparkSession, query: SharedQuery) -> bool:
        """Returns whether Spark's JVM, or the query for good, has ended; a signal to the process group ends it too."""
        gone = session.gone(spark) or query_gone(query.failure)
        if gone is None or self._clock.wait_ms(self._timings.look_ms, self._stop):
            return False
        self._gone = gone
        self.health = Health.UNHEALTHY
        _log.error("Spark is gone", error=str(gone))
        return True

    def _stop_all(self, drop_at_ms: int, until_ms: int) -> None:
        """Stops every connector; cancels at `drop_at_ms` what one still does, and leaves it at `until_ms` as it is."""
        if self._stop.is_set():
            _log.info("stopping", connectors=self._herder.alive())
        for name in self._herder.stop(drop_at_ms, until_ms):
            self._abandon(f"connector {name}")

    def _close(self, spark: SparkSession, until_ms: int) -> None:
        """Ends Spark; a JVM that does not end by `until_ms` is killed: nothing in it is needed any more."""
        # It fails if a signal to the process group has ended the JVM already.
        closing, has_ended = CancellableThread("stop-spark", lambda _: session.close(spark)), False
        with suppress(NoThreadError):
            closing.start()
            has_ended = closing.join(self._left_s(until_ms))
        if not has_ended:
            self._abandon("Spark")
            session.kill(spark)
            return
        session.end(spark, self._left_s(until_ms))

    def _left_s(self, until_ms: int) -> float:
        """Returns the seconds until `until_ms`, on the monotonic clock, but at least LEAST_MS."""
        return max(LEAST_MS, until_ms - self._clock.monotonic_ms()) / 1000

    def _locks_ms(self) -> int | None:
        """Returns how long (ms) locks may take to be given back; None: as long as at the start."""
        return None if self._until_ms is None else round(self._left_s(self._until_ms) * 1000)

    def _abandon(self, what: str) -> None:
        self.abandoned.append(what)
        _log.warning(
            "did not end in task.shutdown.graceful.timeout.ms, left as it is: the next start goes on from the catalog",
            what=what,
        )

    def on_stop(self, number: int, _frame: FrameType | None) -> None:
        """Takes SIGTERM or SIGINT: the worker ends, or does not begin."""
        self._interrupted |= number == signal.SIGINT
        self._stop.set()

    def reload(self) -> None:
        """Has the connector files read again, from any thread."""
        self._reload.set()
        self._stop.wake()


def query_gone(failure: BaseException | None) -> KeyfoldError | None:
    """Returns the error of a worker that starts its query no more, as of `failure`; None while it does."""
    if failure is None:
        return None
    return SparkGoneError(
        f"The streaming query of this worker has ended for good: {briefly(failure)}.",
        "Start the worker again: it goes on from its catalogs.",
    )


def outcome(endings: Iterable[BaseException | None]) -> int:
    """Returns the worker's exit code: 0 if nothing failed, 5 if any was fenced, else the one that all share, or 1."""
    codes = {errors.exit_code(error) for error in endings if error is not None}
    if not codes:
        return errors.EXIT_OK
    if errors.EXIT_FENCED in codes:
        return errors.EXIT_FENCED
    return codes.pop() if len(codes) == 1 else errors.EXIT_FAILED
