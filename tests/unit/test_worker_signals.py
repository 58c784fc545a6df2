from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from connectors import spark as sparks
from connectors.clock import SystemClock
from connectors.config.load import load_worker
from connectors.progress import NullObserver
from connectors.worker import Worker
from tests.support.cli import worker_file


class _Session:
    def stop(self) -> None:
        """What a worker asks of a session at its end."""


def _as_pyspark_does(*_: object) -> Any:
    """A new SparkContext takes SIGINT for itself: it cancels what runs, and raises."""

    def cancel(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, cancel)
    return _Session()


@pytest.mark.parametrize(
    ("number", "once", "code"),
    [
        (signal.SIGINT, False, 0),
        (signal.SIGTERM, False, 0),
        (signal.SIGTERM, True, 0),
        (signal.SIGINT, True, 130),
    ],
)
def test_ctrl_c_ends_a_worker_as_sigterm_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, once: bool, code: int
) -> None:
    """The step that runs is ended first, whatever handler Spark has set up; only --once was not done then."""
    monkeypatch.setattr(sparks, "session", _as_pyspark_does)
    monkeypatch.setattr(Worker, "_watch", lambda *_, **__: signal.raise_signal(number))
    before = signal.getsignal(signal.SIGINT)
    worker = Worker(load_worker(worker_file(tmp_path)), [], SystemClock(), NullObserver())
    assert worker.run(once=once) == code
    assert signal.getsignal(signal.SIGINT) is before
