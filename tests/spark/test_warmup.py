from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.spark import warmup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_warm_up_reads_nothing(spark: SparkSession) -> None:
    """As many partitions as it is told of, none with a record."""
    warmup.read(spark)
    frame = spark.read.format(warmup.WarmUp.name()).option("tasks", 3).load()
    assert (frame.rdd.getNumPartitions(), frame.collect()) == (3, [])
