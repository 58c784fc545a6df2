"""What Spark puts aside on disks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession


def _umasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    umask = os.umask(0o077)
    os.umask(umask)
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"umask": pa.array([umask] * batch.num_rows, pa.int64())})


def test_nobody_else_may_read_what_spark_puts_aside(spark: SparkSession) -> None:
    """Shuffles and what does not fit into memory hold records: neither the JVM's nor Python's files are for others."""
    jvm = spark._jvm
    assert jvm is not None
    folders = list(jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirsString())
    assert folders
    assert [Path(folder).stat().st_mode & 0o077 for folder in folders] == [0] * len(folders)
    found = spark.range(0, 4, 1, 2).mapInArrow(_umasks, "umask long").collect()
    assert {row["umask"] for row in found} == {0o077}
