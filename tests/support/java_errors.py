"""Errors as Py4J raises them for exceptions of Java's, which tests make without a JVM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

SPARK: Final = "org.apache.spark.SparkException"


class JavaError(Exception):
    """As `Py4JJavaError`: `java_exception` is the exception `kind`, which says `said`; `cause` is another's error."""

    def __init__(self, kind: str, said: str = "", cause: JavaError | None = None) -> None:
        super().__init__(f"An error occurred while calling o1.collect.\n: {kind}: {said}")
        self.java_exception: Any = SimpleNamespace(
            getClass=lambda: SimpleNamespace(getName=lambda: kind),
            getMessage=lambda: said or None,
            getCause=lambda: None if cause is None else cause.java_exception,
        )


def stage_failure(first_line: str) -> str:
    """Returns what Spark says of a job whose task failed with an error that is told so."""
    return (
        "Job aborted due to stage failure: Task 1 in stage 4.0 failed 1 times, most recent failure: Lost task 1.0 in "
        f"stage 4.0 (TID 7) (host-1 executor driver): {first_line}\n\tat org.apache.spark.X\n\nDriver stacktrace:"
    )


def worker_ended() -> JavaError:
    """Returns the error of a job whose Python process was killed."""
    ended = JavaError(SPARK, "Python worker exited unexpectedly (crashed). Consider", JavaError("java.io.EOFException"))
    return JavaError(SPARK, stage_failure(f"{SPARK}: Python worker exited unexpectedly (crashed)"), ended)


def job_cancelled() -> JavaError:
    """Returns the error of a job that was cancelled."""
    return JavaError(SPARK, "[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group x SQLSTATE: XXKDA")
