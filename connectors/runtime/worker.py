"""A worker: many connectors in one process and one SparkSession, each in a thread of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Final

import structlog

from compactor.errors import FencedError, KeyfoldError
from compactor.spark.errors import briefly
from connectors import errors
from connectors.clock import Clock
from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.files import ConnectorFile, clashes, load_connector, other_file
from connectors.config.worker import WorkerConfig
from connectors.errors import SparkGoneError
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.probe import BrokerProbe, probe_all
from connectors.progress.observer import Observer
from connectors.runtime.cancellation import StopToken
from connectors.runtime.shared_query import SharedQuery
from connectors.runtime.signals import handled
from connectors.runtime.supervisor import Supervisor
from connectors.runtime.takeover import PROBE_S
from connectors.spark import session
from connectors.spark.session import SparkStart
from connectors.threads import CancellableThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger()

POLL_SECONDS: Final = 0.5
LEAVE_SECONDS: Final = 3.0
STEP_SHARE: Final = 0.6
"""The part of task.shutdown.graceful.timeout.ms in which a step may still finish; after it the step is cancelled."""
LEAST_SECONDS: Final = 1.0
"""Spark has at least this long to close, however long the connectors took."""


class Worker:
    """Runs connectors until all have ended or the process gets a signal to stop.

    `abandoned` names what did not end in its time: the process then has to end without waiting for its threads.
    """

    def __init__(
        self,
        config: WorkerConfig,
        connectors: Sequence[ConnectorFile],
        clock: Clock,
        observer: Observer,
        spark: SparkStart,
    ) -> None:
        self.abandoned: list[str] = []
        self._config = config
        self._files = {file.config.name: file for file in connectors}
        self._clock = clock
        self._observer = observer
        self._spark = spark
        self._stop = StopToken()
        self._interrupted = False
        self._reload = threading.Event()
        self._supervisors: dict[str, Supervisor] = {}
        self._gone: KeyfoldError | None = None

    def run(self, *, once: bool) -> int:
        """Runs until done (`once`), stopped by SIGTERM or SIGINT, or every connector has ended; returns the exit code.

        It is 1 where Spark's JVM has ended: a service manager then starts the worker again. Ctrl-C ends a running
        worker with 0; before `once` is done with 130, as any other command.
        SIGHUP restarts the connectors whose files have changed, and those that are FAILED.
        """
        wanted = {signal.SIGTERM: self.on_stop, signal.SIGINT: self.on_stop, signal.SIGHUP: self._on_reload}
        with handled(wanted):
            for file in self._files.values():
                self._supervisor(file).hold()
            try:
                spark = self._session(once=once)
                if spark is not None:
                    self._run(spark, once=once)
            finally:
                for supervisor in self._supervisors.values():
                    supervisor.release()
        code = outcome([self._gone, *(supervisor.error for supervisor in self._supervisors.values())])
        return errors.EXIT_INTERRUPTED if code == errors.EXIT_OK and once and self._interrupted else code

    def _run(self, spark: SparkSession, *, once: bool) -> None:
        query: SharedQuery | None = None
        try:
            query = SharedQuery(spark, self._clock, connectors=len(self._files))
            query.start(prepares=once)
            self._start_all(spark, query, once=once)
            self._watch(spark, query, once=once)
        finally:
            until = self._clock.monotonic() + self._graceful_seconds
            if query is not None:
                query.begin_stop()
                self._stop_all(until)
                if not query.stop(max(0.0, until - self._clock.monotonic())):
                    self._abandon("the streaming query")
            self._close(spark, until)

    @property
    def _graceful_seconds(self) -> float:
        return self._config.task_shutdown_graceful_timeout_ms / 1000

    def _session(self, *, once: bool) -> SparkSession | None:
        """Waits for Spark; returns None where there is nothing left to do with it.

        With `once`, brokers that do not answer end the worker, which then does not wait for Spark.
        """
        for name in self._files:
            self._observer.stage(name, "starting Spark")
        probe = self._broker_probe() if once and self._files else None
        while True:
            spark = self._started()
            if spark is not None and (probe is None or probe.found):
                return spark
            if self._stop.is_set() or (probe is not None and self._no_broker_answers(probe)):
                break
            if spark is not None:  # only the brokers are waited for
                self._clock.wait(POLL_SECONDS, self._stop)
        self._spark.leave(LEAVE_SECONDS)
        self.abandoned.append("Spark's start")
        return None

    def _started(self) -> SparkSession | None:
        """Returns the session if it starts within POLL_SECONDS, else None; a stop that ends the JVM is no failure."""
        try:
            return self._spark.wait(POLL_SECONDS)
        except Exception:
            if self._clock.wait(POLL_SECONDS, self._stop):
                return None
            raise

    def _broker_probe(self) -> BrokerProbe:
        """Starts a probe of the brokers of all connectors at once."""
        settings = {name: ClientSettings.of(self._config, file.config) for name, file in self._files.items()}
        return BrokerProbe({name: partial(probe_all, name, clients, PROBE_S) for name, clients in settings.items()})

    def _no_broker_answers(self, probe: BrokerProbe) -> bool:
        """Returns whether it is known by now that no broker answers: then every connector has FAILED."""
        silent = probe.silent()
        for name, reason in silent.items():
            self._supervisors[name].fail(reason)
        return bool(silent)

    def _start_all(self, spark: SparkSession, query: SharedQuery, *, once: bool) -> None:
        for name in self._files:
            if not self._stop.is_set():  # set where the signal came while Spark was starting
                self._supervisors[name].start(spark, query, once=once, over=self._stop.wake)

    def _supervisor(self, file: ConnectorFile) -> Supervisor:
        made = Supervisor(self._config, file.config, self._clock, self._observer)
        self._supervisors[file.config.name] = made
        return made

    def _watch(self, spark: SparkSession, query: SharedQuery, *, once: bool) -> None:
        while not self._stop.is_set() and any(one.is_alive() for one in self._supervisors.values()):
            self._stop.is_set_within(POLL_SECONDS, self._clock)  # or until a connector has ended
            if self._lost(spark, query):
                return
            if self._reload.is_set():
                self._reload.clear()
                self._reload_files(spark, query, once=once)

    def _lost(self, spark: SparkSession, query: SharedQuery) -> bool:
        """Returns whether Spark's JVM, or the query for good, has ended; a signal to the process group ends it too."""
        gone = session.gone(spark) or query_gone(query.failure)
        if gone is None or self._clock.wait(POLL_SECONDS, self._stop):
            return False
        self._gone = gone
        _log.error("Spark is gone", error=str(gone))
        return True

    def _stop_all(self, until: float) -> None:
        """Stops every connector; one that has not ended by `until`, in monotonic seconds, is left as it is."""
        if self._stop.is_set():
            _log.info("stopping", connectors=sorted(name for name, one in self._supervisors.items() if one.is_alive()))
        cancel_at = until - self._graceful_seconds * (1 - STEP_SHARE)
        for supervisor in self._supervisors.values():
            supervisor.stop(cancel_at=cancel_at)
        for name, supervisor in self._supervisors.items():
            if not supervisor.join(max(0.0, until - self._clock.monotonic())):
                self._abandon(f"connector {name}")

    def _close(self, spark: SparkSession, until: float) -> None:
        """Ends Spark; a JVM that does not end by `until` is killed: nothing in it is needed any more."""
        # It fails where a signal to the process group has ended the JVM already.
        closing = CancellableThread("stop-spark", lambda _: session.close(spark))
        closing.start()
        if not closing.join(max(LEAST_SECONDS, until - self._clock.monotonic())):
            self._abandon("Spark")
            session.kill(spark)

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

    def _on_reload(self, _number: int, _frame: FrameType | None) -> None:
        self._reload.set()

    def _reload_files(self, spark: SparkSession, query: SharedQuery, *, once: bool) -> None:
        for name, file in list(self._files.items()):
            others = [one for one in self._files.values() if one.path != file.path]
            found = _read_again(file, others, self._config)
            if found is None:
                continue
            if found.config == file.config or isinstance(self._supervisors[name].error, FencedError):
                self._restart_failed(name, once=once)
                continue
            _log.info("connector file changed, restarting the connector", connector=name, file=str(file.path))
            self._supervisors[name].stop(drain=True)
            while not self._supervisors[name].join(0):
                if self._clock.wait(POLL_SECONDS, self._stop):  # a worker that ends does not wait for a fold
                    return
            del self._files[name], self._supervisors[name]
            self._files[found.config.name] = found
            self._supervisor(found).start(spark, query, once=once, over=self._stop.wake)

    def _restart_failed(self, name: str, *, once: bool) -> None:
        """Restarts a connector only if it is FAILED: its file is unchanged, or another worker has taken it over."""
        supervisor = self._supervisors[name]
        if supervisor.has_failed() and not once:
            _log.info("connector file unchanged, FAILED: started again", connector=name)
            supervisor.restart()
        elif supervisor.is_alive():
            _log.info("connector file unchanged: left running", connector=name)
        else:
            _log.info("connector ended: left as it is", connector=name, error=str(supervisor.error))


def _read_again(file: ConnectorFile, others: Sequence[ConnectorFile], worker: WorkerConfig) -> ConnectorFile | None:
    """Reads the file again; returns None where it is not valid any more, alone or beside `others`."""
    try:
        found = load_connector(file.path, worker)
        if found.config != file.config:
            _refuse_clashes(found, others)
        return found
    except KeyfoldError as error:
        _log.error("connector file is not valid any more, going on with what was read before", error=str(error))
        return None


def _refuse_clashes(found: ConnectorFile, others: Sequence[ConnectorFile]) -> None:
    """Raises ConfigError where `found` has the name, or an output topic, of one of `others`.

    Of the others' files the present content counts; of names also those that running connectors were started with.
    """
    name = found.config.name
    until_now = (one.path for one in others if one.config.name == name)
    faults = clashes(found.config, [other_file(one.path) for one in others]) or [
        Fault("name", f'"{name}" is that of {path} until now; start the worker again.') for path in until_now
    ]
    if faults:
        raise FaultyConfigError(str(found.path), faults)


def query_gone(failure: BaseException | None) -> KeyfoldError | None:
    """Returns the error of a worker whose query is not started again, for what `failure` was; None while it is."""
    if failure is None:
        return None
    return SparkGoneError(
        f"The streaming query of this worker has ended for good: {briefly(failure)}.",
        "Start the worker again: it goes on from its catalogs.",
    )


def outcome(found: Iterable[BaseException | None]) -> int:
    """Returns the worker's exit code: 0 if nothing failed, 5 if any was fenced, else the one that all share, or 1."""
    codes = {errors.exit_code(error) for error in found if error is not None}
    if not codes:
        return errors.EXIT_OK
    if errors.EXIT_FENCED in codes:
        return errors.EXIT_FENCED
    return codes.pop() if len(codes) == 1 else errors.EXIT_FAILED
