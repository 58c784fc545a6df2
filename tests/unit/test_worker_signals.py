from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from connectors import spark as sparks
from connectors import worker as workers
from connectors.clock import SystemClock
from connectors.config.load import load_worker
from connectors.progress import NullObserver
from connectors.spark_start import SparkStart
from connectors.worker import Worker
from tests.support.cli import worker_file


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
    monkeypatch.setattr(sparks, "create", lambda *_: never.wait() if moment == "while Spark starts" else _Session())
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
