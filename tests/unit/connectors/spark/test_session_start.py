"""Spark's JVM starts beside this process's own imports."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from connectors.spark import session
from tests.support.cli import ROOT, environment

# What happens by chance, once in many starts: the imports come between what Python does before a fork and after it.
_START = """
import os, subprocess
import connectors.cli.main, connectors.spark.session
os.register_at_fork(before=lambda: __import__("connectors.runtime.worker"))
subprocess.run(["true"], preexec_fn=lambda: None, check=True)
"""


def test_imports_beside_the_start_of_the_jvm_leave_locks_alone() -> None:
    """A module that locks around forks, first imported during one, would release what nobody holds, and say so."""
    done = subprocess.run(
        [sys.executable, "-c", _START], cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_start_that_is_left_leaves_no_settings_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker that is stopped while Spark starts does not wait for it; the file may hold secrets."""
    going, ended = threading.Event(), threading.Event()

    def create(*_: object) -> None:
        going.set()
        ended.wait(60)

    monkeypatch.setattr(session, "create", create)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    start = session.SparkStart("local[1]", {"spark.hadoop.fs.s3a.secret.key": "geheim"})
    try:
        assert going.wait(60)
        assert list(tmp_path.glob("keyfold-spark-*/spark.properties"))
        start.leave(0)
        assert not list(tmp_path.glob("keyfold-spark-*"))
    finally:
        ended.set()
        start.leave(60)  # or its thread would import modules while pytest goes through their loggers
