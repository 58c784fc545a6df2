"""How a worker ends: in its time whatever hangs, and when Spark's JVM is gone; without Spark."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import structlog

from compactor.errors import FencedError, KeyfoldError
from connectors.clock import SystemClock
from connectors.config.connector import ConnectorConfig
from connectors.config.files import load_connector, load_worker
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import (
    EXIT_FAILED,
    EXIT_FENCED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNREACHABLE,
    OutputError,
    SparkGoneError,
    UnreachableError,
)
from connectors.kafka.access import KafkaAccess
from connectors.progress.observer import Observer
from connectors.runtime import status
from connectors.runtime.herder import Herder
from connectors.runtime.lifecycle import RunState, TargetState
from connectors.runtime.supervisor import RunContext
from connectors.runtime.supervisor import Supervisor as RealSupervisor
from connectors.runtime.worker import LEAST_MS, SWITCH_S, Health, Worker, WorkerParts, WorkerTimings
from connectors.spark.session import SparkStart
from tests.support.cli import connector_file, worker_file, worker_over
from tests.support.spark_standins import StandInSession, starting, up


class Supervisor:
    """Ends a while after it is asked to, or never; `hangs` is let go at the test's end."""

    def __init__(self, *, hangs: bool) -> None:
        self.error = None
        self.config: ConnectorConfig | None = None
        self.target, self.state = TargetState.RUNNING, RunState.INIT
        self.drop_at_ms: int | None = None
        self.started = threading.Event()
        self._ended = threading.Event()
        self._hangs = hangs
        self._over: Callable[[], object] = lambda: None

    def start(self, context: RunContext) -> None:
        self.state, self._over = RunState.RUNNING, context.over
        self.started.set()

    def end(self) -> None:
        """Ends by itself, and says so as a supervisor does."""
        self._ended.set()
        self._over()

    def stop(self, *, drop_at_ms: int | None = None) -> None:
        self.drop_at_ms = drop_at_ms
        if not self._hangs:
            self._ended.set()

    def join(self, seconds: float | None = None) -> bool:
        return self._ended.wait(seconds)

    def is_alive(self) -> bool:
        return not self._ended.is_set()

    def release(self) -> None:
        """Holds nothing."""

    def take_lock(self, start: object = None) -> None:
        """Holds nothing."""

    def aim(self, target: object) -> None:
        """Is never paused."""


class DoneTask:
    """A connector's run that has nothing to do."""

    catalog = counted = None

    def __init__(self, *_: object) -> None:
        """Takes what a run takes."""

    def run(self, *_: object, **__: object) -> None:
        """Ends at once."""


def quiet_query(failure: BaseException | None = None) -> Mock:
    """A query that nothing reads through; `failure` is what has ended its thread."""
    return Mock(return_value=Mock(failure=failure))


def supervised(folder: Path, one: Supervisor, **more: str) -> tuple[WorkerConfig, Herder]:
    """A herder over one connector file, and `one` in place of its supervisor."""
    config = load_worker(worker_file(folder, **more))
    files = [load_connector(connector_file(folder, name="c"), config)]

    def supervise(_: WorkerConfig, connector: ConnectorConfig, *_more: object) -> Any:
        one.config = connector
        return one

    return config, Herder(config, SystemClock(), Observer(), files, supervise=supervise)


@pytest.fixture
def worker(tmp_path: Path) -> Any:
    """Runs a worker over one stand-in for a connector and one for Spark; the worker, its code, what it logged."""

    def run(
        *,
        hangs: bool,
        spark: SparkStart,
        stopped: bool = True,
        failure: Exception | None = None,
        files: Any = None,
        **timings: int,
    ) -> tuple[Worker, int, Supervisor, list[Any]]:
        one = Supervisor(hangs=hangs)
        config, herder = supervised(tmp_path, one, **{"task.shutdown.graceful.timeout.ms": "100"})
        parts = WorkerParts(query=quiet_query(failure), timings=WorkerTimings(**timings))
        made = Worker(config, herder, SystemClock(), Observer(), spark, files, parts)
        if files is not None:
            made.reload()
        if stopped:
            made.on_stop(signal.SIGTERM, None)
        with structlog.testing.capture_logs() as logged:
            code = made.run(once=False)
        return made, code, one, logged

    return run


def test_a_start_that_takes_long_is_not_silent(worker: Any) -> None:
    """The log says that Spark is being started, says so again while it takes, and says when it is up."""
    waits = Mock(side_effect=[None] * 5 + [StandInSession()] * 5)
    spark = starting(lambda seconds: threading.Event().wait(seconds) or waits())
    timings = {"look_ms": 10, "still_starting_ms": 20}
    _, _, _, logged = worker(hangs=False, spark=spark, stopped=False, failure=RuntimeError("ends it"), **timings)
    events = [line["event"] for line in logged if "Spark is" in line["event"] or "starting Spark" in line["event"]]
    assert events[0] == "starting Spark"
    assert set(events[1:-2]) == {"Spark is still starting"}
    assert events[-2:] == ["Spark is up", "Spark is gone"]


def test_threads_that_wait_hardly_wait_for_one_that_computes(worker: Any) -> None:
    """A chain of hostile records computes for seconds, and a publish waits dozens of times."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5 * SWITCH_S)
    try:
        worker(hangs=False, spark=up(StandInSession()))
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    finally:
        sys.setswitchinterval(before)


def test_what_does_not_end_in_its_time_is_left(worker: Any) -> None:
    """task.shutdown.graceful.timeout.ms: a warning names it, and the exit code is 0: nothing is lost by it."""
    spark = StandInSession(hangs=True)
    made, code, _, logged = worker(hangs=True, spark=up(spark))
    assert (made.abandoned, code) == (["connector c", "Spark"], EXIT_OK)
    assert [line["what"] for line in logged if line["log_level"] == "warning"] == made.abandoned
    assert spark.killed.is_set()


def test_all_of_the_end_has_one_time(tmp_path: Path) -> None:
    """A connector, Spark and a lock that hang one after the other take that time together, and no further one each."""
    one, spark = Supervisor(hangs=True), StandInSession(hangs=True)
    never = threading.Event()
    setattr(one, "release", never.wait)  # noqa: B010  # mypy takes no other signature
    graceful_s = 5.0
    config, herder = supervised(tmp_path, one, **{"task.shutdown.graceful.timeout.ms": str(round(graceful_s * 1000))})
    made = Worker(config, herder, SystemClock(), Observer(), up(spark), parts=WorkerParts(query=quiet_query()))
    made.on_stop(signal.SIGTERM, None)
    began = time.monotonic()
    made.run(once=False)
    assert time.monotonic() - began < graceful_s + 2 * LEAST_MS / 1000
    assert made.abandoned == ["connector c", "Spark", "giving back owner.lock"]
    never.set()


def test_the_end_of_spark_is_seen_while_files_are_read_again(worker: Any) -> None:
    """A disk that does not answer holds up the reload alone, not what the worker looks at."""
    answers = threading.Event()

    def reload() -> Any:
        answers.wait(60)
        raise OSError("The disk was away.")

    try:
        made, code, _, _ = worker(
            hangs=False, spark=up(StandInSession(code=-9)), stopped=False, files=SimpleNamespace(reload=reload)
        )
        assert (code, made.health) == (EXIT_FAILED, Health.UNHEALTHY)
    finally:
        answers.set()


def test_what_ends_in_its_time_is_waited_for(worker: Any) -> None:
    """It is told from when on its step will be cancelled: before all of the time is over."""
    made, code, one, _ = worker(hangs=False, spark=up())
    assert (made.abandoned, code) == ([], EXIT_OK)
    assert one.drop_at_ms is not None


def test_a_worker_ends_with_its_last_connector(tmp_path: Path) -> None:
    """At once: `--once` is over when its connectors are, not when the worker looks the next time."""
    one = Supervisor(hangs=False)
    config, herder = supervised(tmp_path, one)
    parts = WorkerParts(query=quiet_query(), timings=WorkerTimings(look_ms=60_000))
    made = Worker(config, herder, SystemClock(), Observer(), up(), parts=parts)
    running = threading.Thread(target=made.run, kwargs={"once": False}, daemon=True)
    running.start()
    assert one.started.wait(20)
    one.end()
    running.join(20)
    assert not running.is_alive()


def test_a_query_that_nobody_starts_again_ends_the_worker(worker: Any) -> None:
    """Its connectors would look healthy, and nothing would be read for them."""
    _, found, _, logged = worker(hangs=False, spark=up(), stopped=False, failure=RuntimeError("a defect"))
    (said,) = [line["error"] for line in logged if line["event"] == "Spark is gone"]
    assert found == EXIT_FAILED
    assert "streaming query" in said
    assert "a defect" in said


@pytest.mark.parametrize(("code", "how"), [(-9, "signal 9"), (3, "exit code 3")])
def test_a_jvm_that_ended_ends_the_worker(worker: Any, code: int, how: str) -> None:
    """Exit code 1, so that a service manager starts it again; the error says what happened and what to do."""
    _, found, _, logged = worker(hangs=False, spark=up(StandInSession(code=code)), stopped=False)
    assert found == EXIT_FAILED
    said = [line["error"] for line in logged if line["event"] == "Spark is gone"]
    assert len(said) == 1
    assert how in said[0]
    assert "Start the worker again" in said[0]


def test_a_jvm_that_a_stop_has_ended_is_no_failure(worker: Any) -> None:
    """A signal to the whole process group reaches it as well."""
    assert worker(hangs=False, spark=up(StandInSession(code=143)), stopped=True)[1] == EXIT_OK


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        pytest.param(OutputError("not its output"), "FAILED", EXIT_FAILED, id="FAILED"),
        pytest.param(UnreachableError("away"), "UNASSIGNED", EXIT_OK, id="waits for an outage to end"),
    ],
)
def test_a_signal_ends_a_worker_with_what_its_connectors_have_failed_with(
    tmp_path: Path, error: KeyfoldError, state: str, code: int
) -> None:
    """A FAILED connector is not forgotten; one that is started again by itself has no error that counts."""

    def fail(*_: object, **__: object) -> Mock:
        return Mock(catalog=None, counted=None, run=Mock(side_effect=error))

    def stop_once_failed() -> None:
        if made.herder.connector("c").status.state.value == state:
            made.worker.on_stop(signal.SIGTERM, None)

    spark = StandInSession()
    spark.asked = stop_once_failed
    config = load_worker(worker_file(tmp_path))
    files = [load_connector(connector_file(tmp_path, name="c"), config)]
    clock, observer = SystemClock(), Observer()
    herder = Herder(config, clock, observer, files, supervise=partial(RealSupervisor, tasks=cast("Any", fail)))
    parts = WorkerParts(query=quiet_query(), timings=WorkerTimings(look_ms=10))
    made = SimpleNamespace(herder=herder, worker=Worker(config, herder, clock, observer, up(spark), parts=parts))
    assert made.worker.run(once=False, lives_on=True) == code
    assert made.worker.abandoned == []


def test_what_a_worker_has_loaded_is_passed_over_before_its_connectors_begin(tmp_path: Path) -> None:
    """Later a collection of garbage would go through it each time; connectors may go, and nothing of them stays."""
    connector, spark = Supervisor(hangs=False), StandInSession()
    config, herder = supervised(tmp_path, connector)
    begun: list[bool] = []
    settle = Mock(side_effect=lambda: begun.append(connector.started.is_set()))
    parts = WorkerParts(query=quiet_query(), timings=WorkerTimings(look_ms=10), settle=settle)
    worker = Worker(config, herder, SystemClock(), Observer(), up(spark), parts=parts)
    spark.asked = lambda: worker.on_stop(signal.SIGTERM, None)
    assert worker.run(once=False) == EXIT_OK
    assert (begun, connector.started.is_set()) == ([False], True)


@pytest.mark.parametrize(
    ("silent", "code", "failed"),
    [
        pytest.param({"a", "b"}, EXIT_UNREACHABLE, ["a", "b"], id="all: Spark is not waited for"),
        pytest.param({"a"}, EXIT_OK, [], id="one: the others have to do"),
    ],
)
def test_brokers_that_do_not_answer_end_once_before_spark_is_there(
    tmp_path: Path, silent: set[str], code: int, failed: list[str]
) -> None:
    """Exit code 4; `describe` says why. With one connector left to run, each says by itself how it ends."""

    def reach(name: str, *_: Any) -> None:
        if name in silent:
            raise UnreachableError("away")

    config = load_worker(worker_file(tmp_path))
    files = [load_connector(connector_file(tmp_path, name=name), config) for name in ("a", "b")]
    clock, observer = SystemClock(), Observer()
    herder = Herder(config, clock, observer, files, supervise=partial(RealSupervisor, tasks=cast("Any", DoneTask)))
    parts = WorkerParts(query=quiet_query(), kafka=KafkaAccess(probe_brokers=reach))
    with structlog.testing.capture_logs() as logged:
        made = Worker(config, herder, clock, observer, up(), parts=parts)
        assert made.run(once=True) == code
    assert made.abandoned == (["Spark's start"] if failed else [])
    assert len([line for line in logged if line["event"] == "connector FAILED"]) == len(failed)
    shown = [status.read(connector_storage(config, name)) for name in failed]
    assert [content.state for content in shown if content] == ["FAILED"] * len(failed)


def test_spark_that_does_not_start_ends_the_worker_with_its_error(tmp_path: Path) -> None:
    """It is raised as it is: without Spark no connector can do anything."""

    def refuse(*_: object) -> None:
        raise SparkGoneError("no Java")

    made = worker_over(load_worker(worker_file(tmp_path)), [], starting(refuse))
    with pytest.raises(SparkGoneError, match="no Java"):
        made.run(once=False)


def test_a_stop_that_ends_sparks_jvm_while_it_starts_is_no_failure(tmp_path: Path) -> None:
    """A signal to the whole process group may reach the JVM first: PySpark says that it ended, then we are told."""
    config = load_worker(worker_file(tmp_path))

    def end(*_: object) -> None:
        threading.Timer(0.1, made.on_stop, (signal.SIGTERM, None)).start()
        raise SparkGoneError("the JVM has ended")

    made = worker_over(config, [], starting(end))
    assert made.run(once=False) == EXIT_OK


def test_a_stop_while_brokers_are_looked_for_is_no_failure(tmp_path: Path) -> None:
    """Nobody waits for their silence: the exit code is that of a stop, and no connector FAILED."""
    never = threading.Event()

    def hang(*_: object) -> None:
        never.wait()

    config = load_worker(worker_file(tmp_path))
    files = [load_connector(connector_file(tmp_path), config)]
    made = worker_over(config, files, up(), WorkerParts(kafka=KafkaAccess(probe_brokers=hang)))
    threading.Timer(0.2, made.on_stop, (signal.SIGINT, None)).start()
    assert made.run(once=True) == EXIT_INTERRUPTED
    assert status.read(connector_storage(config, files[0].config.name)) is None
    never.set()


def test_a_fenced_worker_says_so_whatever_is_asked_as_it_ends(tmp_path: Path) -> None:
    """A restart over REST forgets what a connector has ended with."""
    one: Any = Supervisor(hangs=False)
    config, herder = supervised(tmp_path, one)

    def stop(**_: object) -> None:
        one.error = None

    def start(_: object) -> None:
        one.error = FencedError("other:1 has taken it over.")

    one.stop, one.start = stop, start
    one.end()
    parts = WorkerParts(query=quiet_query(), timings=WorkerTimings(look_ms=10))
    worker = Worker(config, herder, SystemClock(), Observer(), up(StandInSession()), parts=parts)
    assert worker.run(once=False, lives_on=True) == EXIT_FENCED
