"""Commands that benchmarks run (benchmarks.harness.process)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.harness.process import running

FAILS_AND_GOES_ON = "import time; print('connector a FAILED', flush=True); time.sleep(600)"


def test_what_does_not_reach_its_goal_is_not_waited_for(tmp_path: Path) -> None:
    """A command that runs on without its goal has a bound, and the error has the end of its log."""
    log = tmp_path / "log"
    with running([sys.executable, "-c", FAILS_AND_GOES_ON], log) as started:
        started.until(lambda: "FAILED" in log.read_text(encoding="utf-8"))
        with pytest.raises(RuntimeError, match=r"(?s)its goal is not reached 0\.1 s after the start:.*a FAILED"):
            started.until(lambda: False, 0.1)


def test_what_ends_before_its_goal_is_an_error(tmp_path: Path) -> None:
    """With its exit code, and the end of its log."""
    with (
        running([sys.executable, "-c", "print('no broker'); raise SystemExit(3)"], tmp_path / "log") as started,
        pytest.raises(RuntimeError, match=r"(?s)ended with 3 before its goal:.*no broker"),
    ):
        started.until(lambda: False)
