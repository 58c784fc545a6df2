"""Spark's JVM starts beside this process's own imports."""

from __future__ import annotations

import subprocess
import sys

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
