from __future__ import annotations

import gc
import traceback

import pytest

from compactor.errors import FencedError, KeyfoldError, StorageError
from compactor.spark.errors import KEY, briefly, tag, tagging, untagged, unwrap, unwrapping, without_plan

TEXT = "Topic t: ${gone} 'it' \"is\"\n\\u00e9 é."


def as_spark_says_it(error: Exception) -> RuntimeError:
    """Spark hands on a traceback's text, inside a message of its own."""
    text = "".join(traceback.format_exception(error))
    return RuntimeError(f"Job aborted: Task 3 failed: org.apache.spark.api.python.PythonException: {text}\n\tat x.y")


@pytest.mark.parametrize("kind", [FencedError, StorageError, KeyfoldError])
def test_an_error_comes_back_from_a_tracebacks_text(kind: type[KeyfoldError]) -> None:
    """Class, message and action survive a traceback's text, whatever characters they have."""
    with pytest.raises(kind) as caught, tagging(KEY), tagging(KEY):
        raise kind(TEXT, "Do this.")
    found = unwrap(as_spark_says_it(caught.value))
    assert type(found) is kind
    assert (found.message, found.action, found.retriable) == (TEXT, "Do this.", kind.retriable)


def test_a_class_that_is_not_known_here_is_its_nearest_base() -> None:
    """A task may know a class that the driver never imported."""
    text = tag(type("LaterError", (FencedError,), {})("m", "a"))
    gc.collect()  # the class is gone with its last error
    assert type(untagged(text)) is FencedError


@pytest.mark.parametrize("text", ["", "plain", "keyfold-error:", "keyfold-error:AAA=", "keyfold-error:bm90IGpzb24="])
def test_other_texts_carry_nothing(text: str) -> None:
    """A text without a whole tag is nobody's error."""
    assert untagged(text) is None
    assert unwrap(ValueError(text)) is None


def test_a_cause_is_found() -> None:
    """An error is found behind what was raised from it."""
    outer = ValueError("outer")
    outer.__cause__ = FencedError("m")
    assert unwrap(outer) is outer.__cause__


def test_unwrapping_raises_what_was_carried_and_lets_others_pass() -> None:
    """In the driver, a carried error replaces Spark's; any other stays as it is."""
    with pytest.raises(FencedError), unwrapping():
        raise RuntimeError(tag(FencedError("m", "a")))
    with pytest.raises(RuntimeError, match="plain"), unwrapping():
        raise RuntimeError("plain")


def test_the_transactions_that_a_task_aborted_are_told() -> None:
    """A task that failed has no other way to say how many there were."""
    error = StorageError("m", "a")
    error.aborted = 2
    found = untagged(tag(error))
    assert found is not None
    assert (found.aborted, getattr(untagged(tag(FencedError("m"))), "aborted", None)) == (2, 0)


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


def test_how_long_brokers_were_silent_comes_back() -> None:
    """A task knows it, and the state of the connector says it."""
    error = StorageError("m")
    error.silent_ms = 7_500
    assert (getattr(untagged(tag(error)), "silent_ms", None), StorageError("m").silent_ms) == (7_500, 0)


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


def test_a_text_that_another_has_written_carries_no_error() -> None:
    """A record or an answer that an error quotes may look like a tag; only the driver's own tasks sign one."""
    forged = tag(FencedError("forged"), b"a guess")
    assert unwrap(ValueError(f"no number: {forged}")) is None
    with pytest.raises(StorageError) as caught, tagging(KEY):
        raise StorageError(f"The store said:\n{forged}\n")
    assert type(unwrap(as_spark_says_it(caught.value))) is StorageError
    with pytest.raises(RuntimeError, match="forged by nobody"), unwrapping():
        raise RuntimeError(f"forged by nobody\n{forged}")
