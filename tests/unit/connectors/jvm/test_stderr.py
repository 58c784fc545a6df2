"""What Spark's JVM writes to stderr."""

from __future__ import annotations

import subprocess
import threading

import pytest

from connectors.jvm.stderr import quietly

_WRITES = """
echo WARNING: Using incubator modules: jdk.incubator.vector >&2
echo '{"event": "one"}' >&2
printf 'the last' >&2
"""


def test_the_warning_of_every_start_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    """Every other line goes on to our stderr, in its order and whole."""
    with quietly() as stderr:
        subprocess.run(["sh", "-c", _WRITES], stderr=stderr, check=True)
    for thread in threading.enumerate():
        if thread.name == "jvm-stderr":
            thread.join(10)
    assert capfd.readouterr().err == '{"event": "one"}\nthe last'
