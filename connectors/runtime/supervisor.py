"""Runs one connector in a thread, and starts it again with back-off where that can help.

From `hold` until the connector has ended this process holds its `owner.lock`, in every state: a connector that waits
for its restart, or is FAILED until an operator restarts it, still belongs to this worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from msgspec.structs import replace

from compactor.catalog import owner_lock
from compactor.catalog.owner_starts import Start
from compactor.catalog.requests import Answer
from compactor.errors import FencedError, OffsetChangeError, StorageError
from compactor.metrics import Freshness
from compactor.model.times import moment
from compactor.spark.errors import unwrap
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.engine_settings import warn_of_readers
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import (
    EXIT_UNREACHABLE,
    NoConnectionError,
    SparkGoneError,
    TopicSetAsideError,
    exit_code,
    is_outage,
)
from connectors.progress.observer import Interval, Observer
from connectors.runtime import restart_policy, status
from connectors.runtime.cancellation import RunStops
from connectors.runtime.connector_task import FENCE_CHECK_MS, ConnectorTask, TaskReport
from connectors.runtime.offset_change import OffsetChanger, every_log
from connectors.runtime.restart_policy import POLL_S, Outage, Outages, RestartBackoff, RestartRequests
from connectors.runtime.shared_query import SharedQuery
from connectors.runtime.status import ConnectorState, Status, StatusFile
from connectors.runtime.takeover import Fenced, StartPlace, newer_owner, stored_state
from connectors.spark import session
from connectors.threads import CancellableThread, let_go

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compactor.catalog.catalog import Catalog
    from compactor.catalog.requests import Request
    from compactor.model.state import CatalogState

RUNNING: Final = Answer(ok=True, result={"state": "RUNNING"})
MEND: Final = (
    "Mend what the error names. If that is in the connector's file, send the worker SIGHUP, which reads it again; "
    "otherwise `keyfold restart` starts the connector."
)

_log = structlog.get_logger()


class Supervisor:
    """Keeps one connector running. `error` is what ended it, None while it runs or when it ended without an error.

    `freshness` is that of the newest run; `topics` is what a run that has ended has counted by source topic.
    """

    def __init__(self, worker: WorkerConfig, connector: ConnectorConfig, clock: Clock, observer: Observer) -> None:
        self.error: BaseException | None = None
        self.freshness = Freshness()
        self.topics: Mapping[str, Mapping[str, int]] = {}
        self._storage = storage = connector_storage(worker, connector.name)
        self._lock = owner_lock.OwnerLock(storage)
        self._task_settings = (worker, connector, clock, observer, self._take_report, self._lock)
        self._place = StartPlace(worker)
        """When this process was told to run the connector, among all starts on the storage location: by `hold`, or at
        its first run. Restarts by itself keep the number, so that they take nothing from a process that came later."""
        self._name = connector.name
        self._hides = partial(status.hidden_in, worker, connector)
        self._clock = clock
        self._backoff = RestartBackoff(connector.restart_backoff_initial_ms, connector.restart_backoff_max_ms)
        self._graceful_s = worker.task_shutdown_graceful_timeout_ms / 1000
        self._status = StatusFile(storage, clock)
        self._requests = RestartRequests(storage, clock)
        self._brokers_answer = partial(restart_policy.brokers_answer, worker, connector)
        self._stops = RunStops()
        self._thread: CancellableThread | None = None
        self._once = False
        self._begins = False
        self._goes_on = False
        """Set by a run that ended because it set a topic aside: the next begins at once, also with `--once`."""
        self._set_aside = set[str]()
        """Topics that such runs have set aside since a run has worked: a second error about one is a failure."""
        self._catalog: Catalog | None = None
        self._stored: CatalogState | None = None
        self._task: ConnectorTask | None = None
        self._requests_due = Interval(clock, POLL_S)
        self._owner_due = Interval(clock, FENCE_CHECK_MS / 1000)
        self._warn_of_readers = partial(warn_of_readers, worker, connector.name)

    def hold(self, start: Start | None = None) -> None:
        """Takes the connector's lock, so that commands find a worker here from before Spark has started.

        `start` is the worker's own, if it is starting now. The lock only informs others: a StorageError here is
        ignored, the task raises its own.
        """
        self._place.start = self._place.start or start
        epoch = self._catalog.epoch if self._catalog else 0
        with suppress(StorageError):
            self._lock.claim(owner_lock.this_process(epoch, self._place.number))

    def start(
        self, spark: SparkSession, query: SharedQuery, *, once: bool, over: Callable[[], object] = lambda: None
    ) -> None:
        """Starts the connector's thread, which reads through `query`; with `once` it ends when all is done.

        `over` is called when it has ended, however that came.
        """
        self._thread = CancellableThread(self._name, lambda _: self._run(spark, query, once=once))
        self._thread.when_over(over)
        self._thread.start()

    def fail(self, error: BaseException) -> None:
        """Makes a connector that was not started FAILED with `error`, for good."""
        self._once = True
        with structlog.contextvars.bound_contextvars(connector=self._name):
            self._fail(error)

    def restart(self) -> None:
        """Ends the run that is under way, or the wait for the next one, and starts another with the same settings."""
        self._stops.restart(cancel_at=self._clock.monotonic() + self._graceful_s)

    def pause(self) -> None:
        """Has the connector take nothing in and publish nothing, in this run and in the next ones, until `resume`."""
        self._stops.paused.set()
        self._stops.run.wake()

    def resume(self) -> None:
        """Ends a pause, if there is one."""
        self._stops.paused.clear()

    def stop(self, *, drain: bool = False, cancel_at: float | None = None) -> None:
        """Lets the step that runs now end, and then the connector; with `drain` a running fold as well.

        At `cancel_at`, in monotonic seconds, that step is cancelled; where it is None, never.
        """
        self._stops.stop(drain=drain, cancel_at=cancel_at)

    def join(self, seconds: float | None = None) -> bool:
        """Waits until the thread has ended, for at most `seconds`; returns whether it has."""
        return self._thread is None or self._thread.join(seconds)

    def release(self) -> None:
        """Gives the lock back, where the connector has ended or was never started."""
        if not self._runs():
            self._lock.release()

    def is_alive(self) -> bool:
        """Returns whether the connector runs, or will be started again by itself."""
        return self._runs() and not self._needs_operator

    def has_failed(self) -> bool:
        """Returns whether it is FAILED, or waits for an outage to end, and can be started again."""
        current = self._status.current
        return self._runs() and (current.state is ConnectorState.FAILED or current.waits)

    @property
    def status(self) -> Status:
        """The newest state, and what an operator asks next; RESTARTING as soon as a restart is asked for."""
        current = self._status.current
        begins_again = self._stops.restarting or self._begins
        if begins_again and current.state not in (ConnectorState.UNASSIGNED, ConnectorState.STOPPED):
            return replace(current, state=ConnectorState.RESTARTING)
        return current

    @property
    def counters(self) -> Mapping[str, int]:
        """What the newest run has counted."""
        return self._status.counters

    @property
    def catalog_state(self) -> CatalogState | None:
        """The newest state of the catalog that this process knows; None before its first take-over or failure."""
        catalog = (self._task.catalog if self._task is not None else None) or self._catalog
        return self._stored if catalog is None else catalog.state

    def _runs(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def _needs_operator(self) -> bool:
        """Whether it is FAILED and is not started again by itself."""
        current = self._status.current
        waits = current.next_restart_ms is None and not self._stops.restarting
        return current.state is ConnectorState.FAILED and waits

    def _run(self, spark: SparkSession, query: SharedQuery, *, once: bool) -> None:
        self._once = once
        with structlog.contextvars.bound_contextvars(connector=self._name):
            try:
                self._warn_of_readers()  # here, as it looks at a disk
                while self._run_task(spark, query) and (self._goes_on or (not once and self._is_to_start_again())):
                    pass
            finally:
                self._requests.answer_restarts(_ended(self._name))
                self._lock.release()

    def _run_task(self, spark: SparkSession, query: SharedQuery) -> bool:
        """Runs the connector once; returns True if it failed, or is to be followed by another run."""
        self._begins = True  # until the status says so itself: a client that waits for RUNNING must not see the old one
        stop = self._stops.begin_run()
        self.error = None
        self._goes_on = False
        self.hold()
        resyncs = self._requests.begin_restarts()
        self._status.start()
        self._begins = False
        task = self._task = ConnectorTask(spark, *self._task_settings)
        try:
            known = None if self._catalog is None else self._catalog.state.catalog_id
            change = partial(self._resync, resyncs) if resyncs else None
            task.run(stop, query, once=self._once, start=self._place.draw(), known=known, change=change)
        except Exception as error:  # noqa: BLE001  # whatever it was, it ends this connector only
            found = unwrap(error) or error
            self._take_counts(task.counted)
            if task.catalog is None and self._catalog is None:
                self._stored = stored_state(self._storage, self._name)
            if isinstance(found, TopicSetAsideError) and str(found.topic) not in self._set_aside and not stop.is_set():
                _log.warning("a source topic is set aside, going on with the others", error=str(found))
                self._set_aside.add(str(found.topic))
                self._goes_on = True
                return True
            if not stop.is_set() or isinstance(found, FencedError):
                self._fail(session.gone(spark) or found)
                return True
            # The same signal may have stopped Spark's JVM first; what that breaks is no failure.
            _log.debug("failed after it was stopped", exc_info=found)
        finally:
            self._catalog = task.catalog or self._catalog
        self._take_counts(task.counted)
        if self._stops.restarting:
            return True
        self._status.show(status.stopped(self._status.current))
        return False

    def _resync(self, asked: Sequence[Request], fenced: Fenced) -> None:
        """Changes offsets as `asked`, and answers; what cannot be done is refused, and the connector runs on."""
        changer = OffsetChanger(*fenced)
        for one in asked:
            choose = every_log(one.topic, one.partition, accepts_loss=one.accepts_loss)
            try:
                changed = changer.change(choose, self._clock.now_ms())
            except OffsetChangeError as error:
                _log.warning("offsets not changed", error=str(error))
                self._requests.answer(one, Answer(ok=False, message=error.message, action=error.action))
            else:
                self._requests.answer(one, Answer(ok=True, result={"logs": msgspec.to_builtins(changed)}))

    def _fail(self, error: BaseException) -> None:
        let_go(error)  # it is kept until the next run, or for good
        self.error = error
        current, now_ms = self._status.current, self._clock.now_ms()
        next_ms = None if self._once else self._backoff.next_restart_ms(error, current.failures + 1, now_ms)
        hides = self._hides(error)
        if next_ms is not None and is_outage(error):
            failed = status.waiting(current, error, next_ms, now_ms, *hides)
        else:
            failed = status.failed(current, error, next_ms, *hides)
        self._status.current = failed
        if not isinstance(error, FencedError):  # then the file is the new owner's
            self._status.show()
        self._log_failure(failed, now_ms)
        _log.debug("what failed", exc_info=error)
        self._requests.answer_restarts(self._failure())

    def _log_failure(self, failed: Status, now_ms: int) -> None:
        at_ms = failed.next_restart_ms
        restart = {} if at_ms is None else {"restart_in_s": round((at_ms - now_ms) / 1000)}
        if failed.waiting_since_ms is None:
            _log.error("connector FAILED", error=failed.error, failures=failed.failures, **restart)
        else:
            since_s = round((now_ms - failed.waiting_since_ms) / 1000)
            _log.warning("connector waits for an outage to end", error=failed.error, since_s=since_s, **restart)

    def _take_counts(self, report: TaskReport | None) -> None:
        """Takes what a run has counted by its end; otherwise what failed last would be in no metric."""
        if report is not None:
            self.freshness, self.topics = report.freshness, report.topics
            self._status.count(report.counters)

    def _take_report(self, report: TaskReport) -> None:
        """Takes what the running task has counted: writes the status, answers restarts and looks for new ones."""
        self.freshness = report.freshness
        if report.worked:
            self._set_aside.clear()
        self._status.report(report.counters, worked=report.worked, paused=report.paused)
        self._requests.answer_restarts(RUNNING)
        if self._requests_due.ready(self._name):
            self._look_for_restart()

    def _look_for_restart(self) -> None:
        if not (self._once or self._stops.again) and self._requests.restart_requested():
            _log.info("restart requested by a command")
            self.restart()

    def _is_to_start_again(self) -> bool:
        """Waits after a failure; returns whether the connector is to be started again."""
        if isinstance(self.error, FencedError | SparkGoneError):  # another owner has it, or nothing can run here
            return False
        if not (self._stops.restarting or self._wait()):
            if not self._needs_operator:  # it was to be started again: to be stopped meanwhile is a clean end
                self.error = None
                self._status.show(status.stopped(self._status.current))
            return False
        fenced = newer_owner(self._catalog)
        if fenced is not None:
            self._fail(fenced)
        return fenced is None

    def _wait(self) -> bool:
        """Waits for the next start; returns False where the connector was stopped meanwhile."""
        needs_operator, outages = self._needs_operator, self._outages()
        seconds = None if needs_operator else self._backoff.delay_ms(self._status.current.failures) / 1000
        over = restart_policy.wait_until(self._clock, self._stops.run, seconds, lambda: self._is_wait_over(outages))
        return over or self._stops.restarting

    def _is_wait_over(self, outages: Outages) -> bool:
        """Writes the status and answers requests while it waits; returns whether something has ended the wait."""
        self._status.show()
        self.hold()
        self._requests.refuse_others(self._failure())
        self._look_for_restart()
        fenced = self._owner_due.ready(self._name) and newer_owner(self._catalog) is not None
        return fenced or outages.any_over()  # where it is fenced the caller asks again, and ends with the error

    def _outages(self) -> Outages:
        """Returns the outages of brokers and storage that may end the wait; none where it waits for an operator.

        Brokers that the connector failed for count as silent already: they may be back before they are first asked.
        """
        if self._needs_operator:
            return Outages(self._clock)
        brokers = Outage(self._brokers_answer, silent=isinstance(self.error, NoConnectionError))
        storage = Outage(self._status.show, silent=not self._status.show())
        return Outages(self._clock, brokers, storage)

    def _failure(self) -> Answer:
        """Returns the answer to every request while the connector is FAILED, or waits for an outage to end."""
        current = self._status.current
        at_ms = current.next_restart_ms
        state = "waits for an outage to end" if current.waits else "is FAILED"
        when = "" if at_ms is None else f", and is started again at {moment(at_ms)} or before"
        action = MEND if at_ms is None else "Nothing was done of what was asked: run the command again then."
        unreachable = self.error is not None and exit_code(self.error) == EXIT_UNREACHABLE
        message = f"Connector {self._name} {state}{when}: {current.error}"
        return Answer(ok=False, message=message, action=action, unreachable=current.waits or unreachable)


def _ended(name: str) -> Answer:
    return Answer(
        ok=False,
        message=f"The worker ended connector {name} before it was started again.",
        action="See the worker's log.",
    )
