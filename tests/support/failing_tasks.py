"""Sets failpoints in Spark's Python tasks: apart from its one test, because it knows how Spark starts workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from compactor.failpoints import VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def failing_tasks(spark: SparkSession, failpoints: str) -> Iterator[None]:
    """Sets `failpoints` in the tasks of jobs made in the block, which Spark runs in Python workers of their own."""
    environment = spark.sparkContext.environment
    environment[VARIABLE] = failpoints
    try:
        yield
    finally:
        del environment[VARIABLE]
