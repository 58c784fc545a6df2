"""The seed by which Spark's Python processes hash texts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

_TEXT = "a name of JSON"
_SCHEMA = "seed string, hashed long"


def _own() -> tuple[str, int]:
    return os.environ.get("PYTHONHASHSEED", ""), hash(_TEXT)


def _in_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    seed, hashed = _own()
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"seed": seed, "hashed": hashed}] * batch.num_rows)


class _Planned(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(_own())]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int]]:
        yield partition.value


class _Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "hash-seed"

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: object) -> DataSourceReader:
        return _Planned()


def test_all_of_them_have_one_that_is_not_pysparks(spark: SparkSession) -> None:
    """Tasks and a source's planner hash alike, and not as everyone's PySpark does."""
    found = spark.range(0, 4, 1, 2).mapInArrow(_in_tasks, _SCHEMA).collect()
    spark.dataSource.register(_Source)
    hashed = {tuple(row) for row in [*found, *spark.read.format("hash-seed").load().collect()]}
    ((seed, _),) = hashed
    assert int(seed) > 0
