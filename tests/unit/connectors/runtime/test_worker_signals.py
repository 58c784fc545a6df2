from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
import structlog

from compactor.catalog.owner_lock import is_alive
from compactor.errors import FencedError, StorageError
from connectors.clock import SystemClock
from connectors.config.connector import ConnectorConfig
from connectors.config.files import load_connector, load_worker
from connectors.config.stores import connector_storage
from connectors.progress.observer import NullObserver
from connectors.runtime import herder as herders
from connectors.runtime import worker as workers
from connectors.runtime.connector_files import ConnectorFiles
from connectors.runtime.herder import Herder
from connectors.runtime.lifecycle import RunState, TargetState
from connectors.runtime.worker import Worker
from connectors.spark import session
from connectors.spark.session import SparkStart
from tests.support.cli import NAME, connector_file, worker_file, worker_over


class _Session:
    def stop(self) -> None:
        """What a worker asks of a session at its end."""


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, once: bool, code: int, moment: str
) -> None:
    """The step that runs is ended first, and Spark's start is not waited for; only --once was not done then."""
    never = threading.Event()
    monkeypatch.setattr(workers, "LEAVE_SECONDS", 0.0)
    monkeypatch.setattr(workers, "SharedQuery", Mock())
    monkeypatch.setattr(session, "create", lambda *_: never.wait() if moment == "while Spark starts" else _Session())
    monkeypatch.setattr(Worker, "_watch", lambda *_, **__: signal.raise_signal(number))
    before = signal.getsignal(signal.SIGINT)
    starting = SparkStart("local[1]", {})
    worker = worker_over(load_worker(worker_file(tmp_path)), [], starting)
    if moment == "while Spark starts":
        monkeypatch.setattr(starting, "wait", lambda _: signal.raise_signal(number))
    assert worker.run(once=once) == code
    assert worker.abandoned == (["Spark's start"] if moment == "while Spark starts" else [])
    assert signal.getsignal(signal.SIGINT) is before
    never.set()


def _running(config: ConnectorConfig) -> Any:
    """A supervisor that runs with `config`."""
    return Mock(error=None, config=config, target=TargetState.RUNNING, state=RunState.RUNNING)


class Reloaded:
    """A herder over connector files whose supervisors are stand-ins, and what reading the files again does to it."""

    def __init__(self, folder: Path, *paths: Path) -> None:
        config = load_worker(worker_file(folder))
        self.files = ConnectorFiles(config, paths)
        self.herder = Herder(config, SystemClock(), NullObserver(), self.files.load())
        self.before = {connector.name: _running(connector.spec.config) for connector in self.herder.connectors()}
        self.herder._runs.update(self.before)

    def reload(self) -> list[Any]:
        """Returns what was logged."""
        with structlog.testing.capture_logs() as logged:
            self.herder.apply(self.files.reload())
            self.herder.reconcile()
        return logged

    @property
    def supervisors(self) -> dict[str, Any]:
        return dict(self.herder._runs)


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


def test_a_worker_holds_its_connectors_before_spark_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command would otherwise take over what is about to run; afterwards they are free."""
    config = load_worker(worker_file(tmp_path))
    file = load_connector(connector_file(tmp_path), config)
    storage = connector_storage(config, NAME)
    seen: list[bool] = []
    worker = worker_over(config, [file], cast("Any", None))
    monkeypatch.setattr(worker, "_session", lambda **_: seen.append(is_alive(storage)))
    assert worker.run(once=False) == 0
    assert (seen, is_alive(storage)) == ([True], False)


@pytest.mark.parametrize("late", ["the files", "the storage", "the locks"])
def test_a_worker_ends_while_a_disk_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str) -> None:
    """Its own thread waits for no file that is read again, and for the locks for a bounded time."""
    reached, never = threading.Event(), threading.Event()

    def hang(*_: object) -> Any:
        reached.set()
        never.wait()

    monkeypatch.setattr(workers, "SharedQuery", Mock(return_value=Mock(failure=None)))
    monkeypatch.setattr(session, "create", lambda *_: _Session())
    monkeypatch.setattr(session, "gone", lambda _: None)
    monkeypatch.setattr(herders, "RELEASE_S", 0.05)
    config = load_worker(worker_file(tmp_path))
    herder = Herder(config, SystemClock(), NullObserver())
    files = ConnectorFiles(config, [])
    if late == "the locks":
        monkeypatch.setattr(herder.specs, "release", hang)
    else:
        asked: object = files if late == "the files" else herder
        monkeypatch.setattr(asked, "reload" if late == "the files" else "apply", hang)
    clock, starting = SystemClock(), SparkStart("local[1]", {})
    worker = Worker(config, herder, clock, NullObserver(), starting, files, lives_on=True)
    running = threading.Thread(target=worker.run, kwargs={"once": False}, daemon=True)
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


def test_files_whose_connectors_storage_is_away_are_taken_up_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker goes on meanwhile, and says what waits."""
    monkeypatch.setattr(workers, "RELOAD_SECONDS", 0.01)
    config = load_worker(worker_file(tmp_path))
    answers = iter([StorageError("Not now."), StorageError("Not now."), None])

    def apply(_: object) -> None:
        if (error := next(answers)) is not None:
            raise error

    files = ConnectorFiles(config, [])
    worker = worker_over(config, [], SparkStart("local[1]", {}))
    monkeypatch.setattr(worker._herder, "apply", apply)
    with structlog.testing.capture_logs() as logged:
        worker._reload_files(files, threading.Event())
    assert [line["event"] for line in logged] == ["connector files wait for the storage"] * 2
    assert next(answers, "asked for each") == "asked for each"
