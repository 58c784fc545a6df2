"""Variables of Spark's Python processes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def _in_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    pool, threads = pa.default_memory_pool().backend_name, os.environ.get("OPENBLAS_NUM_THREADS")
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"pool": pool, "threads": threads}] * batch.num_rows)


def test_arrow_takes_its_memory_from_the_system_in_tasks(spark: SparkSession) -> None:
    """All of Arrow does, what it allocates by itself included: its allocator is chosen before it is imported."""
    told = spark.range(0, 4, 1, 2).mapInArrow(_in_tasks, "pool string, threads string").collect()
    assert {tuple(row) for row in told} == {("system", "1")}
