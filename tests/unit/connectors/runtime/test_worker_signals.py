from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import structlog

from compactor.catalog.owner_lock import is_alive
from compactor.errors import FencedError, StorageError
from connectors.clock import SystemClock
from connectors.config.connector import ConnectorConfig
from connectors.config.files import load_connector, load_worker
from connectors.config.stores import connector_storage, worker_storage
from connectors.progress.observer import Observer
from connectors.runtime.herder import Herder
from connectors.runtime.lifecycle import RunState, TargetState
from connectors.runtime.specs.connector_files import ConnectorFiles, FileChanges
from connectors.runtime.specs.connector_store import FOLDER, ConnectorStore
from connectors.runtime.worker import Worker, WorkerParts, WorkerTimings
from tests.support.cli import NAME, connector_file, worker_file, worker_over
from tests.support.spark_standins import StandInSession, starting, up
from tests.support.thread_limit import no_thread_named

QUIET = WorkerParts(query=lambda *_, **__: Mock(failure=None), timings=WorkerTimings(look_ms=10))


@pytest.mark.parametrize(
    ("number", "once", "code"),
    [
        (signal.SIGINT, False, 0),
        (signal.SIGTERM, False, 0),
        (signal.SIGTERM, True, 0),
        (signal.SIGINT, True, 130),
    ],
)
@pytest.mark.parametrize("moment", ["while Spark starts", "while it runs"])
def test_ctrl_c_ends_a_worker_as_sigterm_does(
    tmp_path: Path, number: signal.Signals, once: bool, code: int, moment: str
) -> None:
    """The step that runs is ended first, and Spark's start is not waited for; only --once was not done then.

    A JVM that runs ends before the process does.
    """
    before = signal.getsignal(signal.SIGINT)
    spark = StandInSession()
    spark.asked = lambda: signal.raise_signal(number)  # as it is watched
    start = starting(lambda _: signal.raise_signal(number)) if moment == "while Spark starts" else up(spark)
    worker = worker_over(load_worker(worker_file(tmp_path)), [], start, QUIET)
    assert worker.run(once=once, lives_on=True) == code
    assert worker.abandoned == (["Spark's start"] if moment == "while Spark starts" else [])
    assert spark.stdin.closed is (moment == "while it runs")
    assert signal.getsignal(signal.SIGINT) is before


def _running(config: ConnectorConfig) -> Any:
    """A supervisor that runs with `config`."""
    return Mock(error=None, config=config, target=TargetState.RUNNING, state=RunState.RUNNING)


class Reloaded:
    """A herder over connector files whose supervisors are stand-ins, and what reading the files again does to it."""

    def __init__(self, folder: Path, *paths: Path) -> None:
        config = load_worker(worker_file(folder))
        self.files = ConnectorFiles(config, paths)
        self.supervisors: dict[str, Any] = {}
        self.herder = Herder(config, SystemClock(), Observer(), self.files.load(), supervise=self._supervise)
        self.herder.take_locks()
        self.before = dict(self.supervisors)

    def _supervise(self, _worker: object, config: ConnectorConfig, *_: object) -> Any:
        self.supervisors[config.name] = _running(config)
        return self.supervisors[config.name]

    def reload(self) -> list[Any]:
        """Returns what was logged."""
        with structlog.testing.capture_logs() as logged:
            self.herder.apply(self.files.reload())
            self.herder.reconcile()
        return logged


@pytest.mark.parametrize(
    ("failed", "waits", "alive", "said", "restarts"),
    [
        (False, False, True, "connector file unchanged: left running", 0),
        (True, False, True, "connector file unchanged, FAILED: started again", 1),
        (True, False, False, "connector file unchanged, FAILED: started again", 1),
        (True, True, True, "connector file unchanged, waits for an outage to end: started again", 1),
        (False, False, False, "connector ended: left as it is", 0),
    ],
)
def test_sighup_says_what_it_did_with_an_unchanged_file(
    tmp_path: Path, failed: bool, waits: bool, alive: bool, said: str, restarts: int
) -> None:
    """A connector that FAILED is started again, whether it would be by itself or not; one that was fenced is not.

    One that waits for an outage to end is not called FAILED.
    """
    worker = Reloaded(tmp_path, connector_file(tmp_path))
    one = worker.before[NAME]
    one.has_failed.return_value, one.status.waits, one.is_alive.return_value = failed, waits, alive
    assert [(line["event"], line["connector"]) for line in worker.reload()] == [(said, NAME)]
    assert (one.restart.call_count, one.stop.call_count) == (restarts, 0)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_changed_file_may_not_take_what_is_another_connectors(tmp_path: Path, swapped: bool) -> None:
    """A name that another connector of the worker has, or had until now, is refused as at the start."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    worker = Reloaded(tmp_path, *(connector_file(tmp_path / name, name=name, topics=name) for name in ("one", "two")))
    connector_file(tmp_path / "one", name="two", topics="one")
    if swapped:
        connector_file(tmp_path / "two", name="one", topics="two")
    logged = worker.reload()
    assert worker.supervisors == worker.before
    assert [one.stop.call_count for one in worker.before.values()] == [0, 0]
    assert [line["log_level"] for line in logged if "not valid" in line["event"]] == ["error"] * (2 if swapped else 1)


def test_a_changed_file_takes_no_connector_back(tmp_path: Path) -> None:
    """One that another worker has taken over is its: who is to run it here starts a worker for it."""
    worker = Reloaded(tmp_path, connector_file(tmp_path))
    one = worker.before[NAME]
    one.error = FencedError("other:1 took it over.")
    connector_file(tmp_path, **{"min.cleanable.dirty.ratio": "0.1"})
    worker.reload()
    assert (worker.supervisors, one.stop.call_count) == ({NAME: one}, 0)


def test_a_worker_holds_its_connectors_before_spark_is_there(tmp_path: Path) -> None:
    """A command would otherwise take over what is about to run; afterwards they are free."""
    config = load_worker(worker_file(tmp_path))
    file = load_connector(connector_file(tmp_path), config)
    storage = connector_storage(config, NAME)
    seen: list[bool] = []

    def wait(_: float) -> None:
        seen.append(is_alive(storage))
        worker.on_stop(signal.SIGTERM, None)

    worker = worker_over(config, [file], starting(wait))
    assert worker.run(once=False) == 0
    assert (seen, is_alive(storage)) == ([True], False)


@pytest.mark.parametrize("late", ["the files", "the storage", "the locks"])
def test_a_worker_ends_while_a_disk_does_not_answer(tmp_path: Path, late: str) -> None:
    """Its own thread waits for no file that is read again, and for the locks for a bounded time."""
    reached, never = threading.Event(), threading.Event()

    def hang(is_late: bool) -> None:
        if is_late:
            reached.set()
            never.wait()

    class Files(ConnectorFiles):
        def reload(self) -> FileChanges:
            hang(late == "the files")
            return super().reload()

    class LateHerder(Herder):
        def apply(self, changes: FileChanges) -> None:
            hang(late == "the storage")
            super().apply(changes)

    class Store(ConnectorStore):
        def release(self) -> None:
            hang(late == "the locks")
            super().release()

    config = load_worker(worker_file(tmp_path))
    store = Store(worker_storage(config).sub(FOLDER))
    herder = LateHerder(config, SystemClock(), Observer(), store=store, locks_ms=50)
    files = Files(config, [])
    worker = Worker(config, herder, SystemClock(), Observer(), up(), files, QUIET)
    running = threading.Thread(target=worker.run, kwargs={"once": False, "lives_on": True}, daemon=True)
    running.start()
    if late != "the locks":
        worker.reload()
        assert reached.wait(20)
        worker.reload()  # it follows when the first has ended
    worker.on_stop(signal.SIGTERM, None)
    running.join(20)
    assert not running.is_alive()
    assert worker.abandoned == (["giving back owner.lock"] if late == "the locks" else [])
    never.set()


def test_files_whose_connectors_storage_is_away_are_taken_up_later(tmp_path: Path) -> None:
    """The worker goes on meanwhile, and says what waits."""
    answers = iter([StorageError("Not now."), StorageError("Not now."), None])
    taken_up = threading.Event()

    class LateHerder(Herder):
        def apply(self, changes: FileChanges) -> None:
            if (error := next(answers)) is not None:
                raise error
            taken_up.set()

    config, clock = load_worker(worker_file(tmp_path)), SystemClock()
    parts = WorkerParts(query=QUIET.query, timings=WorkerTimings(look_ms=10, reload_ms=10))
    herder = LateHerder(config, clock, Observer())
    worker = Worker(config, herder, clock, Observer(), up(), ConnectorFiles(config, []), parts)
    running = threading.Thread(target=worker.run, kwargs={"once": False, "lives_on": True}, daemon=True)
    with structlog.testing.capture_logs() as logged:
        running.start()
        worker.reload()
        assert taken_up.wait(20)
        worker.on_stop(signal.SIGTERM, None)
        running.join(20)
    late = [line["event"] for line in logged if line["event"] == "connector files wait for the storage"]
    assert len(late) == 2


def test_files_are_read_again_once_there_is_a_thread_for_that(tmp_path: Path) -> None:
    """A SIGHUP is not forgotten, and does not end the worker."""
    config, clock, read_again = load_worker(worker_file(tmp_path)), SystemClock(), threading.Event()

    class Files(ConnectorFiles):
        def reload(self) -> FileChanges:
            read_again.set()
            return FileChanges()

    parts = WorkerParts(query=QUIET.query, timings=WorkerTimings(look_ms=10))
    herder = Herder(config, clock, Observer())
    worker = Worker(config, herder, clock, Observer(), up(), Files(config, []), parts)
    running = threading.Thread(target=worker.run, kwargs={"once": False, "lives_on": True}, daemon=True)
    with no_thread_named("reload", times=2):
        running.start()
        worker.reload()
        assert read_again.wait(20)
    worker.on_stop(signal.SIGTERM, None)
    running.join(20)
    assert not running.is_alive()
