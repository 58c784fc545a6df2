from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
import structlog

from compactor.catalog.owner_lock import is_alive
from compactor.errors import FencedError
from connectors.clock import SystemClock
from connectors.config.engine_settings import connector_storage
from connectors.config.files import load_connector, load_worker
from connectors.progress.observer import NullObserver
from connectors.runtime import worker as workers
from connectors.runtime.worker import Worker
from connectors.spark import session
from connectors.spark.session import SparkStart
from tests.support.cli import NAME, connector_file, worker_file


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
    worker = Worker(load_worker(worker_file(tmp_path)), [], SystemClock(), NullObserver(), starting)
    if moment == "while Spark starts":
        monkeypatch.setattr(starting, "wait", lambda _: signal.raise_signal(number))
    assert worker.run(once=once) == code
    assert worker.abandoned == (["Spark's start"] if moment == "while Spark starts" else [])
    assert signal.getsignal(signal.SIGINT) is before
    never.set()


@pytest.mark.parametrize(
    ("failed", "alive", "said", "restarts"),
    [
        (False, True, "connector file unchanged: left running", 0),
        (True, True, "connector file unchanged, FAILED: started again", 1),
        (True, False, "connector file unchanged, FAILED: started again", 1),
        (False, False, "connector ended: left as it is", 0),
    ],
)
def test_sighup_says_what_it_did_with_an_unchanged_file(
    tmp_path: Path, failed: bool, alive: bool, said: str, restarts: int
) -> None:
    """A connector that FAILED is started again, whether it would be by itself or not; one that was fenced is not."""
    config = load_worker(worker_file(tmp_path))
    file = load_connector(connector_file(tmp_path), config)
    worker = Worker(config, [file], SystemClock(), NullObserver(), cast("Any", None))
    one = worker._supervisors[NAME] = Mock()
    one.has_failed.return_value, one.is_alive.return_value = failed, alive
    with structlog.testing.capture_logs() as logged:
        worker._reload_files(cast("Any", None), Mock(), once=False)
    assert [(line["event"], line["connector"]) for line in logged] == [(said, NAME)]
    assert (one.restart.call_count, one.stop.call_count) == (restarts, 0)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_changed_file_may_not_take_what_is_another_connectors(tmp_path: Path, swapped: bool) -> None:
    """A name that another connector of the worker has, or had until now, is refused as at the start."""
    config = load_worker(worker_file(tmp_path))
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    files = [connector_file(tmp_path / name, name=name, topics=name) for name in ("one", "two")]
    worker = Worker(config, [load_connector(one, config) for one in files], SystemClock(), NullObserver(), Mock())
    before = {name: Mock() for name in ("one", "two")}
    worker._supervisors |= before
    connector_file(tmp_path / "one", name="two", topics="one")
    if swapped:
        connector_file(tmp_path / "two", name="one", topics="two")
    with structlog.testing.capture_logs() as logged:
        worker._reload_files(cast("Any", None), Mock(), once=False)
    assert worker._supervisors == before
    assert [before[name].stop.call_count for name in before] == [0, 0]
    assert [line["log_level"] for line in logged if "not valid" in line["event"]] == ["error"] * (2 if swapped else 1)


def test_a_changed_file_takes_no_connector_back(tmp_path: Path) -> None:
    """One that another worker has taken over is its: who is to run it here starts a worker for it."""
    config = load_worker(worker_file(tmp_path))
    file = load_connector(connector_file(tmp_path), config)
    worker = Worker(config, [file], SystemClock(), NullObserver(), cast("Any", None))
    one = worker._supervisors[NAME] = Mock(error=FencedError("other:1 took it over."))
    connector_file(tmp_path, **{"min.cleanable.dirty.ratio": "0.1"})
    worker._reload_files(cast("Any", None), Mock(), once=False)
    assert (worker._supervisors, one.stop.call_count) == ({NAME: one}, 0)


def test_a_worker_holds_its_connectors_before_spark_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command would otherwise take over what is about to run; afterwards they are free."""
    config = load_worker(worker_file(tmp_path))
    file = load_connector(connector_file(tmp_path), config)
    storage = connector_storage(config, NAME)
    seen: list[bool] = []
    worker = Worker(config, [file], SystemClock(), NullObserver(), cast("Any", None))
    monkeypatch.setattr(worker, "_session", lambda **_: seen.append(is_alive(storage)))
    assert worker.run(once=False) == 0
    assert (seen, is_alive(storage)) == ([True], False)
