"""What Spark itself says of a job that was cancelled, or whose Python worker died: neither is taken for a bad file."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from compactor.errors import OutOfRoomError
from compactor.quarantine.quarantine import may_be_damage
from compactor.spark.errors import KEY, tagging, unwrapping
from compactor.spark.job_errors import is_cancelled, is_process_failure
from tests.support.kafka import wait_until

GROUP = "test-broken-off"


def test_a_cancelled_job_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """By the words of the exception that the driver gets."""
    began = tmp_path / "began"

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        began.touch()
        time.sleep(120)
        yield from batches

    found: list[Exception] = []

    def run() -> None:
        spark.sparkContext.setJobGroup(GROUP, "a job that is cancelled", interruptOnCancel=False)
        try:
            spark.range(1).mapInArrow(work, "id long").collect()
        except Exception as error:  # noqa: BLE001  # whatever Spark says is looked at
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(began.exists, "the job runs")
    spark.sparkContext.cancelJobGroup(GROUP)
    thread.join(60)
    (error,) = found
    assert is_cancelled(error)
    assert not may_be_damage(error)


def test_a_python_worker_that_died_says_so(spark: SparkSession) -> None:
    """Killed by the system, as where memory ends; the job was not cancelled."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    with pytest.raises(Exception, match="worker") as found:
        spark.range(1).mapInArrow(work, "id long").collect()
    assert is_process_failure(found.value)
    assert not is_cancelled(found.value)
    assert not may_be_damage(found.value)


def test_a_text_that_a_task_quotes_says_nothing_of_its_job(spark: SparkSession) -> None:
    """A record may hold the words by which Spark tells of a cancelled job, or of a process that died."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ValueError("[SPARK_JOB_CANCELLED] Job 3 cancelled; Python worker exited unexpectedly; OutOfMemoryError")
        yield from batches

    with pytest.raises(Exception, match="SPARK_JOB_CANCELLED") as found:
        spark.range(1).mapInArrow(work, "id long").collect()
    assert not is_cancelled(found.value)
    assert not is_process_failure(found.value)


def test_a_task_without_disk_says_so(spark: SparkSession) -> None:
    """As its spilled rows find the disk full: by its class, on this side of Spark as on the other."""
    key = KEY

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tagging(key):
            raise OSError(errno.ENOSPC, "No space left on device")
        yield from batches

    with pytest.raises(OutOfRoomError) as found, unwrapping():
        spark.range(1).mapInArrow(work, "id long").collect()
    assert is_process_failure(found.value)
