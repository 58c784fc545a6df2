"""A measurement in a process of its own."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.harness import alone
from benchmarks.harness.process import running
from benchmarks.peers.peers import MissingError


@pytest.fixture(autouse=True)
def _no_deaths() -> Iterator[None]:
    alone.deaths.clear()
    yield
    alone.deaths.clear()


def dies(first: Path) -> str:
    """By a signal the first time, leaving a process group behind."""
    if first.exists():
        return "done"
    with running([sys.executable, "-c", "import time; time.sleep(600)"], first.with_name("log")) as started:
        first.write_text(str(started.process.pid))
        os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def within(first: Path) -> str:
    return alone.call("inner", dies, first)


def missing() -> None:
    raise MissingError("no JDK")


def always() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_gives_the_value() -> None:
    """A call gives what the function gives, from another process, whose temporary files are gone with it."""
    assert alone.call("pid", os.getpid) != os.getpid()
    assert not Path(alone.call("folder", tempfile.mkdtemp)).exists()
    assert alone.deaths == []


@pytest.mark.parametrize("function", [dies, within])
def test_dies_once(tmp_path: Path, function: object) -> None:
    """A process that dies by a signal is tried again and noted, also by whoever called its caller; nothing stays."""
    assert callable(function)
    first = tmp_path / "first"
    assert alone.call("outer", function, first) == "done"
    assert len(alone.deaths) == 1
    assert alone.deaths[0].endswith("its process ended with -9")
    assert gone(int(first.read_text()))


def test_dies_twice() -> None:
    """A second death by a signal is an error."""
    with pytest.raises(RuntimeError, match="always: its process was ended by a signal twice"):
        alone.call("always", always)
    assert len(alone.deaths) == 2


def test_errors() -> None:
    """A program that cannot run here is told as such, and any other error with its trace; neither is tried again."""
    with pytest.raises(MissingError, match="no JDK"):
        alone.call("peer", missing)
    with pytest.raises(RuntimeError, match=r"(?s)division: *\n.*ZeroDivisionError"):
        alone.call("division", divmod, 1, 0)
    assert alone.deaths == []
