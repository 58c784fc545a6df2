"""Calls in a child process (benchmarks.harness.call)."""

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

from benchmarks.harness.call import call, killed
from benchmarks.harness.process import running
from benchmarks.harness.row import MissingError


@pytest.fixture(autouse=True)
def _none_killed() -> Iterator[None]:
    killed.clear()
    yield
    killed.clear()


def killed_once(first: Path) -> str:
    """Is killed the first time, with a process group of its own still running."""
    if first.exists():
        return "done"
    with running([sys.executable, "-c", "import time; time.sleep(600)"], first.with_name("log")) as started:
        first.write_text(str(started.process.pid))
        os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def nested(first: Path) -> str:
    return call("inner", killed_once, first)


def missing() -> None:
    raise MissingError("no JDK")


def killed_always() -> None:
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


def test_a_call_returns_the_value() -> None:
    """A call returns what the function returns in another process, whose temporary files are removed."""
    assert call("pid", os.getpid) != os.getpid()
    assert not Path(call("folder", tempfile.mkdtemp)).exists()
    assert killed == []


@pytest.mark.parametrize("function", [killed_once, nested])
def test_a_killed_call_is_tried_once_more(tmp_path: Path, function: object) -> None:
    """A call whose process was killed is repeated and noted, also in the outer caller, and leaves no process behind."""
    assert callable(function)
    first = tmp_path / "first"
    assert call("outer", function, first) == "done"
    assert len(killed) == 1
    assert killed[0].endswith("its process ended with -9")
    assert gone(int(first.read_text()))


def test_a_call_killed_twice_fails() -> None:
    """A call whose process is killed a second time raises."""
    with pytest.raises(RuntimeError, match="always: its process was ended by a signal twice"):
        call("always", killed_always)
    assert len(killed) == 2


def test_errors_of_a_call_are_raised() -> None:
    """MissingError is raised as it is, any other error with its trace; neither call is repeated."""
    with pytest.raises(MissingError, match="no JDK"):
        call("peer", missing)
    with pytest.raises(RuntimeError, match=r"(?s)division: *\n.*ZeroDivisionError"):
        call("division", divmod, 1, 0)
    assert killed == []
