"""How a worker ends: in its time whatever hangs, and when Spark's JVM is gone; without Spark."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import structlog

from connectors.config.files import load_connector, load_worker
from connectors.config.stores import connector_storage
from connectors.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_UNREACHABLE, SparkGoneError, UnreachableError
from connectors.runtime import status, supervisor
from connectors.runtime import worker as workers
from connectors.runtime.connectors import ConnectorSpec
from connectors.runtime.lifecycle import RunState, TargetState
from connectors.runtime.worker import Worker
from connectors.spark import session
from connectors.spark.session import SparkStart
from tests.support.cli import connector_file, worker_file, worker_over


class Supervisor:
    """Ends a while after it is asked to, or never; `hangs` is let go at the test's end."""

    def __init__(self, *, hangs: bool) -> None:
        self.error = None
        self.config = None
        self.target, self.state = TargetState.RUNNING, RunState.RUNNING
        self.drop_at: float | None = None
        self._ended = threading.Event()
        self._hangs = hangs

    def stop(self, *, drop_at: float | None = None) -> None:
        self.drop_at = drop_at
        if not self._hangs:
            self._ended.set()

    def join(self, seconds: float | None = None) -> bool:
        return self._ended.wait(seconds)

    def is_alive(self) -> bool:
        return not self._ended.is_set()

    def release(self) -> None:
        """Holds nothing."""

    def hold(self, start: object = None) -> None:
        """Holds nothing."""

    def aim(self, target: object) -> None:
        """Is never paused."""


class Session:
    """Spark, which closes at once, or not before its process is killed."""

    def __init__(self, *, hangs: bool = False, code: int | None = None) -> None:
        self.killed = threading.Event()
        process = SimpleNamespace(poll=lambda: code, kill=self.killed.set)
        self.sparkContext = SimpleNamespace(_gateway=SimpleNamespace(proc=process))
        self._jsparkSession = SimpleNamespace(stop=self._stop)
        self._hangs = hangs

    def _stop(self) -> None:
        if self._hangs:
            self.killed.wait()


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a worker over one stand-in for a connector and one for Spark; the worker, its code, what it logged."""

    def run(
        *, hangs: bool, spark: Session, stopped: bool = True, failure: Exception | None = None, files: Any = None
    ) -> tuple[Worker, int, Supervisor, list[Any]]:
        monkeypatch.setattr(session, "create", lambda *_: spark)
        monkeypatch.setattr(workers, "SharedQuery", Mock(return_value=Mock(failure=failure)))
        starting = SparkStart("local[1]", {})
        config = load_worker(worker_file(tmp_path, **{"task.shutdown.graceful.timeout.ms": "100"}))
        made, one = worker_over(config, [], starting), Supervisor(hangs=hangs)
        made._herder._runs["c"] = cast("Any", one)
        if files is not None:
            made._files = files
            made.reload()
        made._herder.specs._specs["c"] = ConnectorSpec(cast("Any", None))
        if stopped:
            made._stop.set()
        with structlog.testing.capture_logs() as logged:
            code = made.run(once=False)
        return made, code, one, logged

    return run


def test_a_start_that_takes_long_is_not_silent(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log says that Spark is being started, says so again while it takes, and says when it is up."""
    monkeypatch.setattr(workers, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(workers, "SPARK_SAID_S", 0.02)
    waits = Mock(side_effect=[None] * 5 + [Session()] * 5)
    monkeypatch.setattr(SparkStart, "wait", lambda _, seconds: threading.Event().wait(seconds) or waits())
    _, _, _, logged = worker(hangs=False, spark=Session(), stopped=False, failure=RuntimeError("ends it"))
    events = [line["event"] for line in logged if "Spark is" in line["event"] or "starting Spark" in line["event"]]
    assert events[0] == "starting Spark"
    assert set(events[1:-2]) == {"Spark is still starting"}
    assert events[-2:] == ["Spark is up", "Spark is gone"]


def test_what_does_not_end_in_its_time_is_left(worker: Any) -> None:
    """task.shutdown.graceful.timeout.ms: a warning names it, and the exit code is 0: nothing is lost by it."""
    spark = Session(hangs=True)
    made, code, _, logged = worker(hangs=True, spark=spark)
    assert (made.abandoned, code) == (["connector c", "Spark"], EXIT_OK)
    assert [line["what"] for line in logged if line["log_level"] == "warning"] == made.abandoned
    assert spark.killed.is_set()


def test_the_end_of_spark_is_seen_while_files_are_read_again(worker: Any) -> None:
    """A disk that does not answer holds up the reload alone, not what the worker looks at."""
    answers = threading.Event()

    def reload() -> Any:
        answers.wait(60)
        raise OSError("The disk was away.")

    try:
        made, code, _, _ = worker(
            hangs=False, spark=Session(code=-9), stopped=False, files=SimpleNamespace(reload=reload)
        )
        assert (code, made.health) == (EXIT_FAILED, workers.Health.UNHEALTHY)
    finally:
        answers.set()


def test_what_ends_in_its_time_is_waited_for(worker: Any) -> None:
    """It is told from when on its step will be cancelled: before all of the time is over."""
    made, code, one, _ = worker(hangs=False, spark=Session())
    assert (made.abandoned, code) == ([], EXIT_OK)
    assert one.drop_at is not None


def test_a_worker_ends_with_its_last_connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: `--once` is over when its connectors are, not when the worker looks the next time."""
    monkeypatch.setattr(workers, "POLL_SECONDS", 60.0)
    monkeypatch.setattr(session, "create", lambda *_: Session())
    monkeypatch.setattr(supervisor.Supervisor, "_run", lambda *_, **__: threading.Event().wait(0.2))
    monkeypatch.setattr(workers, "SharedQuery", Mock(return_value=Mock(failure=None)))
    config = load_worker(worker_file(tmp_path))
    starting = SparkStart("local[1]", {})
    made = worker_over(config, [load_connector(connector_file(tmp_path), config)], starting)
    running = threading.Thread(target=made.run, kwargs={"once": False}, daemon=True)
    running.start()
    running.join(20)
    assert not running.is_alive()


def test_a_query_that_nobody_starts_again_ends_the_worker(worker: Any) -> None:
    """Its connectors would look healthy, and nothing would be read for them."""
    _, found, _, logged = worker(hangs=False, spark=Session(), stopped=False, failure=RuntimeError("a defect"))
    (said,) = [line["error"] for line in logged if line["event"] == "Spark is gone"]
    assert found == EXIT_FAILED
    assert "streaming query" in said
    assert "a defect" in said


@pytest.mark.parametrize(("code", "how"), [(-9, "signal 9"), (3, "exit code 3")])
def test_a_jvm_that_ended_ends_the_worker(worker: Any, code: int, how: str) -> None:
    """Exit code 1, so that a service manager starts it again; the error says what happened and what to do."""
    _, found, _, logged = worker(hangs=False, spark=Session(code=code), stopped=False)
    assert found == EXIT_FAILED
    said = [line["error"] for line in logged if line["event"] == "Spark is gone"]
    assert len(said) == 1
    assert how in said[0]
    assert "Start the worker again" in said[0]


def test_a_jvm_that_a_stop_has_ended_is_no_failure(worker: Any) -> None:
    """A signal to the whole process group reaches it as well."""
    assert worker(hangs=False, spark=Session(code=143), stopped=True)[1] == EXIT_OK


@pytest.mark.parametrize(
    ("silent", "code", "failed"),
    [
        pytest.param({"a", "b"}, EXIT_UNREACHABLE, ["a", "b"], id="all: Spark is not waited for"),
        pytest.param({"a"}, EXIT_OK, [], id="one: the others have to do"),
    ],
)
def test_brokers_that_do_not_answer_end_once_before_spark_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: set[str], code: int, failed: list[str]
) -> None:
    """Exit code 4; `describe` says why. With one connector left to run, each says by itself how it ends."""

    def reach(name: str, *_: Any) -> None:
        if name in silent:
            raise UnreachableError("away")

    monkeypatch.setattr(workers, "probe_all", reach)
    monkeypatch.setattr(session, "create", lambda *_: Session())
    monkeypatch.setattr(supervisor.Supervisor, "_run", lambda *_, **__: None)
    monkeypatch.setattr(workers, "SharedQuery", Mock(return_value=Mock(failure=None)))
    config = load_worker(worker_file(tmp_path))
    files = [load_connector(connector_file(tmp_path, name=name), config) for name in ("a", "b")]
    starting = SparkStart("local[1]", {})
    with structlog.testing.capture_logs() as logged:
        made = worker_over(config, files, starting)
        assert made.run(once=True) == code
    assert made.abandoned == (["Spark's start"] if failed else [])
    assert len([line for line in logged if line["event"] == "connector FAILED"]) == len(failed)
    shown = [status.read(connector_storage(config, name)) for name in failed]
    assert [found["state"] for found in shown if found] == ["FAILED"] * len(failed)


def test_spark_that_does_not_start_ends_the_worker_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is raised as it is: without Spark no connector can do anything."""

    def refuse(*_: object) -> None:
        raise SparkGoneError("no Java")

    monkeypatch.setattr(session, "create", refuse)
    made = worker_over(load_worker(worker_file(tmp_path)), [], SparkStart("local[1]", {}))
    with pytest.raises(SparkGoneError, match="no Java"):
        made.run(once=False)


def test_a_stop_that_ends_sparks_jvm_while_it_starts_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal to the whole process group may reach the JVM first: PySpark says that it ended, then we are told."""
    config = load_worker(worker_file(tmp_path))

    def end(*_: object) -> None:
        threading.Timer(0.1, lambda: made._stop.set()).start()  # noqa: PLW0108  # it is made a moment later
        raise SparkGoneError("the JVM has ended")

    monkeypatch.setattr(session, "create", end)
    made = worker_over(config, [], SparkStart("local[1]", {}))
    assert made.run(once=False) == EXIT_OK


def test_a_stop_while_brokers_are_looked_for_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for their silence: the exit code is that of a stop, and no connector FAILED."""
    never = threading.Event()
    monkeypatch.setattr(workers, "probe_all", lambda *_: never.wait())
    monkeypatch.setattr(session, "create", lambda *_: Session())
    config = load_worker(worker_file(tmp_path))
    files = [load_connector(connector_file(tmp_path), config)]
    made = worker_over(config, files, SparkStart("local[1]", {}))
    threading.Timer(0.2, made.on_stop, (signal.SIGINT, None)).start()
    assert made.run(once=True) == EXIT_INTERRUPTED
    assert status.read(connector_storage(config, files[0].config.name)) is None
    never.set()
