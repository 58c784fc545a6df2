"""What Spark's planner process does with the source."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.cli import ROOT

_SCRIPT = """
import io
from pyspark.serializers import read_int
from connectors.source.datasource import Address, StreamReader

def driver_is_gone():
    raise EOFError

reader = StreamReader(Address("nowhere", "key"))
try:
    try:
        {what}
    finally:
        reader.stop()
except BaseException as error:
    print("told", type(error).__name__)
"""


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("read_int(io.BytesIO())", ""),
        ("driver_is_gone()", "told EOFError\n"),
        ("reader.initialOffset()", "told FileNotFoundError\n"),
        ("pass", ""),
    ],
    ids=["Spark has closed the socket", "the driver's link ends", "a step fails", "nothing"],
)
def test_the_end_of_a_query_leaves_no_trace(what: str, told: str) -> None:
    """PySpark's reader ends as Spark closes its socket; whatever else it meets is told to Spark."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(what=what)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == (told, "", 0)
