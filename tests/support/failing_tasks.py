"""Failpoints in the Python tasks of a Spark that runs in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from compactor.failpoints import VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def failing_tasks(spark: SparkSession, failpoints: str) -> Iterator[None]:
    """Tasks of jobs that are made inside meet `failpoints`: Spark gives them Python workers of their own."""
    environment = spark.sparkContext.environment
    environment[VARIABLE] = failpoints
    try:
        yield
    finally:
        del environment[VARIABLE]
