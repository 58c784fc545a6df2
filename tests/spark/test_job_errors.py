"""What Spark itself says of a job that was cancelled, or whose Python worker died: neither is taken for a bad file."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from compactor.quarantine.quarantine import may_be_damage
from compactor.spark.errors import is_cancelled, is_process_failure
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
