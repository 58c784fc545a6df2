from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from connectors.source import warmup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _imported(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Whether this process has what the source needs."""
    for batch in batches:
        yield pa.record_batch({"found": [warmup.SOURCE in sys.modules] * batch.num_rows})


def test_after_a_warm_up_the_processes_of_tasks_have_imported_the_source(spark: SparkSession) -> None:
    """A micro-batch waits for no import then."""
    warmup.read(spark)
    tasks = spark.sparkContext.defaultParallelism
    found = spark.range(0, tasks, 1, tasks).mapInArrow(_imported, "found boolean").collect()
    assert [row.found for row in found] == [True] * tasks


def test_a_warm_up_reads_nothing(spark: SparkSession) -> None:
    """As many partitions as it is told of, none with a record."""
    warmup.read(spark)
    frame = spark.read.format(warmup.WarmUp.name()).option("tasks", 3).load()
    assert (frame.rdd.getNumPartitions(), frame.collect()) == (3, [])
