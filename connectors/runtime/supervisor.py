"""One connector's thread: runs its pipeline, and starts it again with back-off where that can help.

From `hold` until it has ended the process holds the connector's `owner.lock`, whatever state the connector is in: a
connector that waits for its restart, or that FAILED until somebody restarts it, is in the hands of a worker that lives.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from compactor.catalog import owner
from compactor.catalog.requests import Answer
from compactor.clean.decision import moment
from compactor.errors import CatalogError, FencedError, StorageError
from compactor.spark.errors import unwrap
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.stores import connector_storage, warn_of_readers
from connectors.config.worker import WorkerConfig
from connectors.errors import NoConnectionError, SparkGoneError
from connectors.progress.observer import Observer, Throttle
from connectors.runtime import state
from connectors.runtime.cancellation import StopToken
from connectors.runtime.connector_task import FENCE_CHECK_MS, ConnectorTask
from connectors.runtime.desk import RUNNING, Desk
from connectors.runtime.outage import Outage, brokers_answer
from connectors.runtime.state import Backoff, ConnectorState, Status
from connectors.runtime.status import StatusFile
from connectors.spark import session as sparks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compactor.catalog.catalog import Catalog

POLL_S: Final = 1.0
"""How often a connector that waits for its restart looks at requests and at the store."""
ASK_EVERY_S: Final = 2.0
"""How often brokers that do not answer are asked again; with a take-over within the 5 s of docs/reliability.md."""

MEND: Final = (
    "Mend what the error names. If that is in the connector's file, send the worker SIGHUP, which reads it again; "
    "otherwise `keyfold restart` starts the connector."
)

_log = structlog.get_logger()


class Supervisor:
    """Keeps one connector running. `error` is what ended it, None while it runs or when it ended well."""

    def __init__(self, worker: WorkerConfig, connector: ConnectorConfig, clock: Clock, observer: Observer) -> None:
        self.error: BaseException | None = None
        storage = connector_storage(worker, connector.name)
        self._lock = owner.OwnerLock(storage)
        self._made_of = (worker, connector, clock, observer, self._report, self._lock)
        self._name = connector.name
        self._clock = clock
        self._backoff = Backoff(connector.restart_backoff_initial_ms, connector.restart_backoff_max_ms)
        self._graceful_s = worker.task_shutdown_graceful_timeout_ms / 1000
        self._file = StatusFile(storage)
        self._desk = Desk(storage, clock)
        self._brokers_answer = partial(brokers_answer, worker, connector)
        warn_of_readers(worker, connector.name)
        self._status = Status()
        self._thread = threading.Thread(target=lambda: None)
        self._stop = StopToken()
        self._life = StopToken()
        self._again = threading.Event()
        self._once = False
        self._turn = threading.Lock()
        self._needs_operator = False
        self._pipeline: ConnectorTask | None = None
        self._catalog: Catalog | None = None
        self._began_ms: int | None = None
        self._requests_due = Throttle(clock, POLL_S)
        self._owner_due = Throttle(clock, FENCE_CHECK_MS / 1000)
        self._outages_due = Throttle(clock, ASK_EVERY_S)

    def hold(self) -> None:
        """Takes the connector's lock, so that commands find a worker here from before Spark has started.

        It is a courtesy: a store that refuses it shows that where it matters.
        """
        with suppress(StorageError):
            self._lock.claim(owner.here(self._catalog.epoch if self._catalog else 0))

    def start(self, spark: SparkSession, *, once: bool) -> None:
        """Starts the connector's thread; with `once` it ends when all that is there now is done."""
        self._once = once
        self._thread = threading.Thread(target=self._run, args=(spark,), kwargs={"once": once}, name=self._name)
        self._thread.daemon = True
        self._thread.start()

    def fail(self, error: BaseException) -> None:
        """The connector, which was not started, ends with `error`."""
        with structlog.contextvars.bound_contextvars(connector=self._name):
            self._fail(error, once=True)

    def restart(self) -> None:
        """Ends the life that runs now, or the wait for the next one, and begins another under the same settings."""
        with self._turn:
            self._again.set()
            self._life.ask(break_at=self._clock.monotonic() + self._graceful_s)

    def ask_to_stop(self, *, patient: bool = False, break_at: float | None = None) -> None:
        """Lets the step that runs now end, and then the connector; where `patient`, a running fold as well.

        At `break_at`, in monotonic seconds, that step is broken off; where there is none it may take its time.
        """
        with self._turn:
            self._stop.ask(patient=patient, break_at=break_at)
            self._life.ask(patient=patient, break_at=break_at)

    def join(self, seconds: float | None = None) -> bool:
        """Waits until the thread has ended, `seconds` at most; whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def release(self) -> None:
        """Gives the lock back, where the connector has ended or was never started."""
        if not self._thread.is_alive():
            self._lock.release()

    def is_alive(self) -> bool:
        """Whether the connector still runs, or will be started again by itself."""
        return self._thread.is_alive() and not self._needs_operator

    def has_failed(self) -> bool:
        """Whether it is FAILED and can be started again, by itself or not."""
        return self._thread.is_alive() and self._status.state is ConnectorState.FAILED

    def _run(self, spark: SparkSession, *, once: bool) -> None:
        with structlog.contextvars.bound_contextvars(connector=self._name):
            try:
                while self._attempt(spark, once=once) and not once and self._is_to_start_again():
                    pass
            finally:
                self._desk.restarted(_ended(self._name))
                self._lock.release()

    def _attempt(self, spark: SparkSession, *, once: bool) -> bool:
        """One life of the pipeline; True if it failed, or is to be followed by another."""
        life = self._begin()
        pipeline = self._pipeline = ConnectorTask(spark, *self._made_of)
        try:
            pipeline.run(life, once=once, known=None if self._catalog is None else self._catalog.state.catalog_id)
        except Exception as error:  # noqa: BLE001  # whatever it was, it ends this connector only
            found = unwrap(error) or error
            if not life.is_set() or isinstance(found, FencedError):
                self._fail(sparks.gone(spark) or found, once=once)
                return True
            # Whoever stops us may have stopped Spark's JVM first; what that breaks is no failure.
            _log.debug("broken off by the stop", exc_info=found)
        finally:
            self._catalog = pipeline.catalog or self._catalog
        if self._starts_at_once():
            return True
        self._show(state.stopped(self._status))
        return False

    def _begin(self) -> StopToken:
        """Resets what belongs to one life and takes the lock; gives the Stop by which that life is told to end."""
        with self._turn:
            self._again.clear()
            life = self._life = StopToken()
            if self._stop.is_set():
                life.ask(patient=self._stop.patient, break_at=self._stop.break_at)
        self.error = None
        self._needs_operator = False
        self._began_ms = self._clock.now_ms()
        self.hold()
        self._desk.begin_restarts()
        self._show(state.starting(self._status))
        return life

    def _fail(self, error: BaseException, *, once: bool) -> None:
        self.error = error
        self._status = state.failed(self._status, error, self._backoff, self._clock.now_ms(), once=once)
        if not isinstance(error, FencedError):  # then the file is the new owner's
            self._show(self._status)
        _log.error(
            "connector FAILED",
            error=self._status.error,
            failures=self._status.failures,
            **self._restart(),
        )
        _log.debug("what failed", exc_info=error)
        self._desk.restarted(self._failure())

    def _restart(self) -> dict[str, int]:
        """In how many seconds it is started again at the latest, for the log; nothing where it is not."""
        at_ms = self._status.next_restart_ms
        return {} if at_ms is None else {"restart_in_s": round((at_ms - self._clock.now_ms()) / 1000)}

    def _report(self, counters: dict[str, int]) -> None:
        """Called by the pipeline again and again while it runs."""
        worked = self._pipeline is not None and self._pipeline.worked
        self._status = state.running(self._status, worked=worked)
        self._file.write(self._status, self._clock.now_ms(), counters, self._began_ms)
        self._desk.restarted(RUNNING)
        if self._requests_due.ready(self._name):
            self._look_for_restart()

    def _look_for_restart(self) -> None:
        if not (self._once or self._again.is_set()) and self._desk.restart_asked():
            _log.info("restart asked for by a command")
            self.restart()

    def _show(self, status: Status) -> bool:
        self._status = status
        return self._file.write(status, self._clock.now_ms())

    def _starts_at_once(self) -> bool:
        return self._again.is_set() and not self._stop.is_set()

    def _is_to_start_again(self) -> bool:
        """Waits after a failure; True once the connector is to be started again, False where it is not."""
        if isinstance(self.error, FencedError | SparkGoneError):  # nothing of it is ours, or can run here, any more
            return False
        self._needs_operator = self._status.next_restart_ms is None and not self._starts_at_once()
        if not (self._starts_at_once() or self._wait()):
            if not self._needs_operator:  # it was to be started again: being stopped meanwhile is a clean end
                self.error = None
                self._show(state.stopped(self._status))
            return False
        fenced = self._newer_owner()
        if fenced is not None:
            self._fail(fenced, once=False)
        return fenced is None

    def _wait(self) -> bool:
        """True once the time is over, what was away is back, or a restart was asked for; False where it was stopped.

        Meanwhile it writes the status and answers requests, so that commands see a worker that waits.
        """
        outages = self._outages()
        left = self._backoff.delay_ms(self._status.failures) / 1000
        until = None if self._needs_operator else self._clock.monotonic() + left
        while until is None or (left := until - self._clock.monotonic()) > 0:
            if self._clock.wait(POLL_S if until is None else min(left, POLL_S), self._life):
                return self._starts_at_once()
            self._show(self._status)
            self.hold()
            self._desk.refuse(self._failure())
            self._look_for_restart()
            if self._owner_due.ready(self._name) and self._newer_owner():
                return True  # the caller asks again, and ends with the error
            if self._outages_due.ready(self._name) and any(outage.is_over() for outage in outages):
                _log.info("outage is over, starting the connector")
                return True
        return True

    def _outages(self) -> tuple[Outage, ...]:
        """Brokers and store, which are asked while it waits; none where it waits for an operator.

        Brokers that the connector failed for count as silent already: they may be back before the first question.
        """
        if self._needs_operator:
            return ()
        brokers = Outage(self._brokers_answer, silent=isinstance(self.error, NoConnectionError))
        store = Outage(lambda: self._show(self._status), silent=not self._show(self._status))
        return brokers, store

    def _newer_owner(self) -> FencedError | None:
        """The error that ends this connector here, where another worker has taken it over meanwhile.

        None where the newer epoch is our own: a take-over that was committed, but whose answer was lost.
        """
        try:
            if self._catalog is not None:
                self._catalog.refresh()
        except FencedError as error:
            return error if self._catalog and self._catalog.state.owner != str(owner.here()) else None
        except (StorageError, CatalogError):  # the next life says so
            return None
        return None

    def _failure(self) -> Answer:
        """The answer to every request while the connector is FAILED."""
        at_ms = self._status.next_restart_ms
        when = "" if at_ms is None else f", and is started again at {moment(at_ms)} or before"
        action = MEND if at_ms is None else "Try again then."
        return Answer(ok=False, message=f"Connector {self._name} is FAILED{when}: {self._status.error}", action=action)


def _ended(name: str) -> Answer:
    return Answer(
        ok=False,
        message=f"The worker ended connector {name} before it was started again.",
        action="See the worker's log.",
    )
