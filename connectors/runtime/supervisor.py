"""Runs one connector in a thread, and starts it again with back-off if that can help.

`lifecycle.py` decides what follows; this module carries it out. From `take_lock` until the connector has ended, this
process holds its `owner.lock`, in every state: a connector that waits for its restart, or is FAILED until an operator
restarts it, still belongs to this worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import structlog
from msgspec import Struct
from msgspec.structs import replace

from compactor.catalog import owner_lock
from compactor.catalog.owner_starts import Start
from compactor.catalog.requests import Answer
from compactor.errors import FencedError, OffsetChangeError, StorageError, TruncatedError
from compactor.metrics import Freshness
from compactor.spark.errors import unwrap
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.engine_settings import warn_of_readers
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import (
    EXIT_UNREACHABLE,
    NoConnectionError,
    NoThreadError,
    TopicSetAsideError,
    exit_code,
    is_outage,
)
from connectors.progress.observer import Interval, Observer
from connectors.runtime import restart_policy, status
from connectors.runtime.connector_task import FENCE_CHECK_MS, ConnectorTask, TaskReport
from connectors.runtime.lifecycle import RunEffect, RunEvent, RunState, TargetState, transition
from connectors.runtime.offset_change import MAY_BE_DONE, OffsetChanger, after_truncates, asked_by
from connectors.runtime.request_answers import RUNNING, Doubt, RestartRequests, done_answer, failure_answer
from connectors.runtime.restart_policy import Outage, Outages, RestartBackoff
from connectors.runtime.shared_query import SharedQuery
from connectors.runtime.status import ConnectorState, Status, StatusFile
from connectors.runtime.stop import Stop
from connectors.runtime.takeover import Fenced, StartPlace, newer_owner, stored_state
from connectors.spark import session
from connectors.threads import CancellableThread, let_go

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compactor.catalog.catalog import Catalog
    from compactor.catalog.requests import Request
    from compactor.model.state import CatalogState

_log = structlog.get_logger()


TaskMaker: TypeAlias = Callable[..., ConnectorTask]


class RunContext(Struct, frozen=True):
    """What the runs of a worker's connectors have in common; `over` is called when a supervisor's thread has ended.

    `others` gives the configs of all of them.
    """

    spark: SparkSession
    query: SharedQuery
    once: bool
    over: Callable[[], object] = lambda: None
    others: Callable[[], Iterable[ConnectorConfig]] = tuple


class Supervisor:
    """Runs one connector: a thread around `lifecycle.transition`.

    `error` is what ended the last run, None while it runs or when it ended without an error. `freshness` is that of the
    newest run; `topics` is what a run that has ended has counted by source topic.
    """

    def __init__(
        self,
        worker: WorkerConfig,
        connector: ConnectorConfig,
        clock: Clock,
        observer: Observer,
        *,
        tasks: TaskMaker = ConnectorTask,
        changers: Callable[..., OffsetChanger] = OffsetChanger,
        brokers_answer: Callable[[WorkerConfig, ConnectorConfig], bool] = restart_policy.brokers_answer,
    ) -> None:
        self.config = connector
        self.error: BaseException | None = None
        self.freshness = Freshness()
        self.topics: Mapping[str, Mapping[str, int]] = {}
        self._storage = storage = connector_storage(worker, connector.name)
        self._lock = owner_lock.OwnerLock(storage)
        self._new_task: Callable[[SparkSession], ConnectorTask] = lambda spark: tasks(
            spark, worker, connector, clock, observer, self._take_report, self._lock
        )
        # When this process was told to run the connector, among all starts on the storage location: set by
        # its first run. Restarts by itself keep it, so that they take nothing from a process that came later.
        self._place = StartPlace(worker)
        self._name = connector.name
        self._hides = partial(status.hidden_in, worker, connector)
        self._clock = clock
        self._changers = changers
        self._backoff = RestartBackoff(connector.restart_backoff_initial_ms, connector.restart_backoff_max_ms)
        self._graceful_ms = worker.task_shutdown_graceful_timeout_ms
        self._status = StatusFile(storage, clock)
        self._requests = RestartRequests(storage, clock)
        self._brokers_answer = partial(brokers_answer, worker, connector)
        self._warn_of_readers = partial(warn_of_readers, worker, connector.name)
        self._owner_due = Interval(clock, FENCE_CHECK_MS)
        # The three values of its life, and what guards them: other threads set the target, its own ends runs.
        self._moving = threading.RLock()
        self.target = TargetState.RUNNING
        self.state = RunState.INIT
        # That of the run under way, or of the wait after it.
        self._stop = Stop()
        # Set by `start`, before the thread is there.
        self._thread: CancellableThread | None = None
        self._once = False
        # Topics that runs have set aside since one has worked: a second error about one of them is a failure.
        self._set_aside = set[str]()
        # The truncates that ended the last run: the next one begins with them applied. Set by its own thread.
        self._truncates: TruncatedError | None = None
        # Whether the last run was asked to change offsets, and whether nothing tells if it has. Set by its own thread.
        self._was_resync, self._is_in_doubt = False, False
        # The newest run, the catalog of the last one that took over, and what storage held if none has so far.
        self._task: ConnectorTask | None = None
        self._catalog: Catalog | None = None
        self._stored: CatalogState | None = None

    def take_lock(self, start: Start | None = None) -> None:
        """Takes the connector's lock, so that commands find a worker here from before Spark has started.

        `start` is the worker's own, if it is starting now. A StorageError is ignored: the task raises its own.
        """
        self._place.start = self._place.start or start
        epoch = self._catalog.epoch if self._catalog else 0
        with suppress(StorageError):
            self._lock.claim(owner_lock.this_process(epoch, self._place.number))

    def start(self, context: RunContext) -> None:
        """Starts the connector's thread; if the context is that of `--once` it ends when all is done.

        If no thread can be started the connector is FAILED, and INIT, so that it may be started later.
        """
        self._once = context.once
        thread = self._thread = CancellableThread(self._name, lambda _: self._run(context))
        thread.when_over(context.over)
        self._move(RunEvent.START)
        try:
            thread.start()
        except NoThreadError as error:
            self._thread = None
            self._move(RunEvent.NOT_STARTED)
            if not isinstance(self.error, NoThreadError):  # it is tried twice a second
                _log.error("connector FAILED, started once there is a thread", connector=self._name, error=str(error))
                self.error, self._status.current = error, status.failed(self._status.current, error, None)

    def fail(self, error: BaseException) -> None:
        """Makes a connector that was not started FAILED with `error`, for good."""
        with structlog.contextvars.bound_contextvars(connector=self._name):
            self._end_run(RunEvent.LAST, error)

    def restart(self) -> None:
        """Ends the run that is under way, or the wait for the next one, and starts another with the same settings."""
        drop_at_ms = self._clock.monotonic_ms() + self._graceful_ms
        self._move(RunEvent.RESTART, lambda stop: stop.drop(drop_at_ms))

    def aim(self, target: TargetState) -> None:
        """Has the connector run, or pause: take nothing in and publish nothing, in this run and in the next ones."""
        with self._moving:
            if target not in (self.target, TargetState.STOPPED) and self.target is not TargetState.STOPPED:
                self.target = target
                self._move(RunEvent.TARGET)

    def stop(self, *, drop_at_ms: int | None = None) -> None:
        """Lets what runs now finish, a fold as well, and then ends the connector for good.

        With `drop_at_ms`, on the monotonic clock, the fold ends at once, and the step that still runs then. Of several
        stops the stronger counts.
        """
        with self._moving:
            self.target = TargetState.STOPPED
            self._move(RunEvent.TARGET, Stop.finish if drop_at_ms is None else lambda stop: stop.drop(drop_at_ms))

    def join(self, seconds: float | None = None) -> bool:
        """Waits until the thread has ended, for at most `seconds`; returns whether it has."""
        return self._thread is None or self._thread.join(seconds)

    def release(self) -> None:
        """Gives the lock back, if the connector has ended or was never started."""
        if not self._has_thread():
            self._lock.release()

    def is_alive(self) -> bool:
        """Returns whether the connector runs, or will be started again by itself."""
        return self._has_thread() and self.state not in (RunState.FAILED, RunState.ENDED)

    def has_failed(self) -> bool:
        """Returns whether it is FAILED, or waits for an outage to end, and can be started again."""
        current = self._status.current
        return self._has_thread() and (current.state is ConnectorState.FAILED or current.waits)

    @property
    def status(self) -> Status:
        """The newest state, and what an operator asks next.

        It is RESTARTING from when a restart is asked for until the new run reports: a client that waits for RUNNING
        never sees the run that ends.
        """
        current = self._status.current
        begins = self.state in (RunState.STARTING, RunState.RESTARTING)
        if begins and current.state not in (ConnectorState.UNASSIGNED, ConnectorState.STOPPED):
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

    def _has_thread(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _move(self, event: RunEvent, end_run: Callable[[Stop], None] = Stop.finish) -> RunEffect:
        """Makes a transition, and what it does to the stop token; the rest of the effect is its thread's."""
        with self._moving:
            self.state, effect = transition(self.target, self.state, event)
            match effect:
                case RunEffect.BEGIN_RUN | RunEffect.BEGIN_AGAIN:
                    self._stop = Stop()
                    if self.target is TargetState.PAUSED:
                        self._stop.paused.set()
                case RunEffect.PAUSE_RUN:
                    self._stop.paused.set()
                    self._stop.wake()
                case RunEffect.RESUME_RUN:
                    self._stop.paused.clear()
                case RunEffect.END_RUN:
                    end_run(self._stop)
            return effect

    def _run(self, context: RunContext) -> None:
        """Makes one run after the other, and waits between them, until the state is ENDED."""
        with structlog.contextvars.bound_contextvars(connector=self._name):
            try:
                self._warn_of_readers()  # here, as it looks at a disk
                effect = RunEffect.BEGIN_RUN
                while True:
                    fenced = newer_owner(self._catalog) if effect is RunEffect.BEGIN_AGAIN else None
                    if fenced is not None:
                        self._end_run(RunEvent.FENCED, fenced)
                        return
                    if effect in (RunEffect.BEGIN_RUN, RunEffect.BEGIN_AGAIN):
                        effect = self._run_task(context)
                    elif effect is RunEffect.SHOW_FAILURE and self.state is not RunState.ENDED:
                        effect = self._wait()
                    else:
                        return
            finally:
                message = f"The worker ended connector {self._name} before it was started again."
                action = MAY_BE_DONE if self._is_in_doubt else "See the worker's log."
                self._requests.answer_restarts(Answer(ok=False, message=message, action=action))
                self._lock.release()

    def _run_task(self, context: RunContext) -> RunEffect:
        """Makes one run, and says what follows it."""
        stop = self._stop
        self.error = None
        self.take_lock()
        resyncs = self._requests.begin_restarts()
        self._was_resync, self._is_in_doubt = bool(resyncs), False
        self._status.start()
        task = self._task = self._new_task(context.spark)
        known = None if self._catalog is None else self._catalog.state.catalog_id
        change = partial(self._change, resyncs) if resyncs or self._truncates is not None else None
        error: BaseException | None = None
        try:
            task.run(
                stop, context.query, once=context.once, start=self._place.draw(), known=known, change=change,
                others=context.others,
            )  # fmt: skip
        except BaseException as raised:  # noqa: BLE001  # whatever it was, it ends this connector only
            error = unwrap(raised) or raised
        finally:
            self._catalog = task.catalog or self._catalog
        if (report := task.counted) is not None:  # otherwise what failed last would be in no metric
            self.freshness, self.topics = report.freshness, report.topics
            self._status.count(report.counters)
        if error is None:
            return self._end_run(RunEvent.DONE)
        if self._catalog is None:
            self._stored = stored_state(self._storage, self._name)
        gone = session.gone(context.spark)
        is_last = self._once or gone is not None
        return self._end_run(restart_policy.event_of(error, self._set_aside, is_last=is_last), gone or error)

    def _end_run(self, event: RunEvent, error: BaseException | None = None) -> RunEffect:
        """Ends a run or a wait with `event`, writes into the status what that shows, and returns what follows."""
        effect = self._move(event)
        if effect is RunEffect.SHOW_STOPPED:
            self.error = None
            self._status.show(status.stopped(self._status.current))
        if error is None:
            return effect
        if effect is RunEffect.SHOW_FAILURE:
            self._show_failure(error, is_retried=event is RunEvent.RETRIABLE)
        elif effect is RunEffect.BEGIN_RUN and isinstance(error, TopicSetAsideError):
            _log.warning("a source topic is set aside, going on with the others", error=str(error))
            self._set_aside.add(str(error.topic))
        elif effect is RunEffect.BEGIN_RUN and isinstance(error, TruncatedError):
            _log.warning("tables were truncated, their outputs begin again", error=str(error))
            self._truncates = error
        else:  # the signal that stopped it may have stopped Spark's JVM first; what that breaks is no failure
            _log.debug("failed after it was stopped", exc_info=error)
        return effect

    def _change(self, resyncs: Sequence[Request], fenced: Fenced) -> None:
        """Changes offsets as asked, then applies truncates; if that fails, the run that reads them again repeats it."""
        self._resync(resyncs, fenced)
        truncates, self._truncates = self._truncates, None
        if truncates is not None:
            choose = after_truncates(truncates.offsets, truncates.fences)
            self._changers(*fenced).change(choose, self._clock.now_ms())

    def _resync(self, asked: Sequence[Request], fenced: Fenced) -> None:
        """Changes offsets as `asked`, and answers; what cannot be done is refused, and the connector runs on."""
        changer = self._changers(*fenced)
        for request in asked:
            try:
                changed = changer.change(asked_by(request), self._clock.now_ms())
            except OffsetChangeError as error:
                _log.warning("offsets not changed", error=str(error))
                self._requests.answer(request, Answer(ok=False, message=error.message, action=error.action))
            except Exception:
                self._is_in_doubt = changer.is_in_doubt
                if changer.changed is not None:  # what is left, the next run does
                    self._requests.answer(request, done_answer(changer.changed))
                raise
            else:
                self._requests.answer(request, done_answer(changed))

    def _show_failure(self, error: BaseException, *, is_retried: bool) -> None:
        let_go(error)  # it is kept until the next run, or for good
        self.error = error
        current, now_ms = self._status.current, self._clock.now_ms()
        next_ms = now_ms + self._backoff.delay_ms(current.failures + 1) if is_retried else None
        hides = self._hides(error)
        if next_ms is not None and is_outage(error):
            failed = status.waiting(current, error, next_ms, now_ms, *hides)
        else:
            failed = status.failed(current, error, next_ms, *hides)
        self._status.current = failed
        if not isinstance(error, FencedError):  # then the file is the new owner's
            self._status.show()
        restart = {} if next_ms is None else {"restart_in_s": round((next_ms - now_ms) / 1000)}
        if failed.waiting_since_ms is None:
            _log.error("connector FAILED", error=failed.error, failures=failed.failures, **restart)
        else:
            since_s = round((now_ms - failed.waiting_since_ms) / 1000)
            _log.warning("connector waits for an outage to end", error=failed.error, since_s=since_s, **restart)
        _log.debug("what failed", exc_info=error)
        self._requests.answer_restarts(self._failure(begun=True))

    def _take_report(self, report: TaskReport) -> None:
        """Takes what the running task has counted: writes the status, answers restarts, looks for new ones if asked."""
        self.freshness = report.freshness
        if report.worked:
            self._set_aside.clear()
        self._move(RunEvent.PAUSED if report.paused else RunEvent.UP)  # before what may wait for a store
        self._status.report(report.counters, worked=report.worked, paused=report.paused)
        self._requests.answer_restarts(RUNNING)
        if report.asked:
            self._look_for_restart(asked=True)

    def _look_for_restart(self, *, asked: bool = False) -> None:
        begins = self._once or self.state is RunState.RESTARTING
        if not begins and self._requests.restart_requested(asked=asked):
            _log.info("restart requested by a command")
            self.restart()

    def _wait(self) -> RunEffect:
        """Waits for the next run, and says what follows: it, or the connector's end."""
        if self.state in (RunState.WAITING, RunState.FAILED):
            by_itself = self.state is RunState.WAITING
            outages = self._outages() if by_itself else Outages(self._clock)
            wait_ms = self._backoff.delay_ms(self._status.current.failures) if by_itself else None
            restart_policy.wait_until(self._clock, self._stop, wait_ms, lambda: self._is_wait_over(outages))
        return self._end_run(RunEvent.DUE)

    def _is_wait_over(self, outages: Outages) -> bool:
        """Writes the status and answers requests while it waits; returns whether something has ended the wait."""
        self._status.show()
        self.take_lock()
        self._requests.refuse_others(self._failure())
        self._look_for_restart()
        fenced = self._owner_due.ready(self._name) and newer_owner(self._catalog) is not None
        return fenced or outages.any_over()  # if it is fenced the next run asks again, and ends with the error

    def _outages(self) -> Outages:
        """Returns the outages of brokers and storage that may end the wait.

        Brokers that the connector failed for count as silent already: they may be back before they are first asked.
        """
        brokers = Outage(self._brokers_answer, silent=isinstance(self.error, NoConnectionError))
        storage = Outage(self._status.show, silent=not self._status.show())
        return Outages(self._clock, brokers, storage)

    def _failure(self, *, begun: bool = False) -> Answer:
        """Returns the answer to every request while the connector is FAILED, or waits for an outage to end.

        `begun`: the run that has failed was for the request.
        """
        unreachable = self.error is not None and exit_code(self.error) == EXIT_UNREACHABLE
        doubt = Doubt(begun=begun, was_resync=self._was_resync, is_in_doubt=self._is_in_doubt)
        return failure_answer(self._name, self._status.current, doubt, unreachable=unreachable)
