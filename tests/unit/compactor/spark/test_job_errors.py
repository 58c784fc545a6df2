from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from compactor.errors import OutOfRoomError
from compactor.quarantine.quarantine import may_be_damage
from compactor.spark.errors import KEY, tagging, unwrapping
from compactor.spark.job_errors import is_cancelled, is_process_failure
from compactor.spark.tasks import TaskFallback
from tests.support.java_errors import SPARK, JavaError, job_cancelled, stage_failure, worker_ended

STOPPED = "Cannot call methods on a stopped SparkContext.\nThis stopped SparkContext was created at:"
WORDS = [
    "[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group x",
    "Job 7 cancelled because SparkContext was shut down",
    "java.lang.InterruptedException",
    STOPPED,
    "Python worker exited unexpectedly (crashed)",
    "java.lang.OutOfMemoryError: Java heap space",
    "java.io.IOException: No space left on device",
    stage_failure("java.lang.OutOfMemoryError: Java heap space"),
]


class Py4JNetworkError(Exception):
    """As Py4J raises if the JVM is gone; it is told by its name."""


@pytest.mark.parametrize(
    "error",
    [
        job_cancelled(),
        JavaError(SPARK, "Job 8 cancelled because SparkContext was shut down"),
        JavaError("java.lang.IllegalStateException", STOPPED),
        JavaError(SPARK, "Exception thrown in awaitResult: ", JavaError("java.lang.InterruptedException")),
        JavaError(SPARK, stage_failure("org.apache.spark.TaskKilledException")),
        ConnectionRefusedError(111, "Connection refused"),
        Py4JNetworkError("Answer from Java side is empty"),
    ],
    ids=str,
)
def test_a_job_that_was_cancelled_is_told_by_class_and_by_what_spark_says(error: Exception) -> None:
    """As PySpark 4.2 was seen to raise them, also if the error is the reason for another one."""
    later = RuntimeError("later")
    later.__cause__ = error
    for raised in (error, later):
        assert (is_cancelled(raised), is_process_failure(raised), may_be_damage(raised)) == (True, False, False)


@pytest.mark.parametrize(
    "error",
    [
        worker_ended(),
        JavaError("java.lang.OutOfMemoryError", "Java heap space"),
        JavaError(SPARK, stage_failure("java.lang.OutOfMemoryError: Java heap space")),
        JavaError(SPARK, "Job aborted.", JavaError("java.io.IOException", "No space left on device")),
        JavaError("java.nio.file.FileSystemException", "/disk/blockmgr-1/x: No space left on device"),
        OSError(errno.ENOSPC, "No space left on device"),
        MemoryError(),
        OutOfRoomError("A task had no disk left."),
    ],
    ids=str,
)
def test_the_end_of_a_process_and_a_full_disk_are_told_by_class(error: Exception) -> None:
    """No file is read for them: each says that a process had no room."""
    assert (is_process_failure(error), is_cancelled(error), may_be_damage(error)) == (True, False, False)


def forgeries(words: str) -> list[Exception]:
    """Returns errors that quote a record with these words in it, as far as a record's text reaches."""
    trace = f"Traceback (most recent call last):\n  File x\nValueError: {words}"
    of_python = JavaError("org.apache.spark.api.python.PythonException", f"[PYTHON_EXCEPTION] {trace}")
    return [
        ValueError(words),
        OSError(errno.EIO, words),
        of_python,
        JavaError(SPARK, stage_failure(f"org.apache.spark.api.python.PythonException: {trace}"), of_python),
        JavaError("org.apache.spark.SparkRuntimeException", f"[CAST_INVALID_INPUT] The value '{words}' of type"),
        JavaError(SPARK, f"[FAILED_READ_FILE.NO_HINT] {words}", JavaError("java.lang.RuntimeException", words)),
    ]


@pytest.mark.parametrize("error", [error for words in WORDS for error in forgeries(words)], ids=range(len(WORDS) * 6))
def test_no_text_of_a_record_makes_an_error_a_cancelled_job_or_a_lost_process(error: Exception) -> None:
    """A producer may write what it likes into a value, and a converter, or Spark, may quote it."""
    assert (is_cancelled(error), is_process_failure(error), may_be_damage(error)) == (False, False, True)
    assert not TaskFallback("w", lambda: False).give_up(error)


def test_an_error_whose_jvm_has_ended_since_is_no_fault_of_the_job() -> None:
    """Nobody can say any more what it was."""

    def gone() -> Any:
        raise Py4JNetworkError("Answer from Java side is empty")

    error = JavaError(SPARK, "said")
    error.java_exception.getClass = gone
    assert (is_cancelled(error), is_process_failure(error)) == (True, False)


def _no_memory() -> None:
    raise MemoryError


def _no_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("fail", [_no_memory, _no_disk])
def test_a_task_without_room_says_so_beyond_spark(fail: Callable[[], None]) -> None:
    """Spark hands a Python error on as a text, which is not believed; the tag of ours is signed."""
    with pytest.raises(OutOfRoomError) as caught, tagging(KEY):
        fail()
    with pytest.raises(OutOfRoomError), unwrapping():
        raise RuntimeError("\n".join(caught.value.__notes__))
    assert TaskFallback("w", lambda: False).give_up(caught.value)


def test_another_error_of_the_system_stays_what_it_is() -> None:
    """Only a full disk is one that has no room."""
    with pytest.raises(OSError, match="Input"), tagging(KEY):
        raise OSError(errno.EIO, "Input/output error")
