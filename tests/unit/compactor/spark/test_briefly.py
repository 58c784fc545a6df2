"""What is said of an error: enough to act on, and nothing of Spark's plans."""

from __future__ import annotations

import pytest

from compactor.errors import StorageError
from compactor.spark.errors import briefly, without_plan

PLAN = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: the disk is full\n"
    "=== Streaming Query ===\nIdentifier: [id = 1]\nCurrent Committed Offsets: {}\n\nLogical Plan:\n"
    'WriteToMicroBatchDataSource\n+- StreamingDataSourceV2 keyfold, {"sasl.password": "hunter2"}\n'
)
TASK = (
    "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job aborted: Lost task 0.0: "
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "worker.py", line 1, in main\n    process()\nValueError: no such key\n\n\tat org.apache.spark.X\n'
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StorageError("Could not write.", "Free space."), "Could not write. Free space."),
        (RuntimeError(PLAN), "[STREAM_FAILED] Query [id = 1] terminated with exception: the disk is full"),
        (RuntimeError(TASK), "An error occurred while calling o1.collect.: ValueError: no such key"),
        (RuntimeError("Traceback (most recent call last):\n  File x\nKeyError: 1"), "KeyError: 1"),
        (RuntimeError("x" * 9000), "x" * 500 + "…"),
        (RuntimeError(""), "RuntimeError"),
        (KeyError("k"), "'k'"),
    ],
)
def test_an_error_is_told_in_a_line(error: Exception, said: str) -> None:
    """Ours whole; Spark's by its first line and the exception that a task raised, without plan or trace."""
    assert briefly(error) == said


def test_a_plan_is_left_out_of_a_trace() -> None:
    """What comes behind it stays: it may say more."""
    text = f"RuntimeError: {PLAN}\n\nThe above exception was the direct cause of the following exception:\n\nlast"
    assert "Plan" not in without_plan(text)
    assert without_plan(text).endswith("following exception:\n\nlast")
