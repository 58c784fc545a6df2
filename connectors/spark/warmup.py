"""Starts Spark's Python processes while connectors are taken over, by reading a source without records once.

Spark starts a Python process of another kind for each question that it asks a source, one after the other and only
when it asks; each imports PySpark, and those of tasks the source's reader, which takes most of a second. It
stands on its own because they import it as well: it imports little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READER: Final = "connectors.source.reader"
"""The module that the processes of tasks import meanwhile."""


def read(spark: SparkSession) -> None:
    """Reads no records, in as many tasks as run at once."""
    spark.dataSource.register(WarmUp)
    spark.read.format(WarmUp.name()).option("tasks", spark.sparkContext.defaultParallelism).load().collect()


class WarmUp(DataSource):
    """Source of no records, in as many partitions as its option `tasks` says."""

    @classmethod
    def name(cls) -> str:
        """Returns what `format(…)` is given."""
        return "keyfold-warm-up"

    def schema(self) -> str:
        """Returns one column, as Spark needs one."""
        return "nothing int"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Returns what plans and reads."""
        return _Nothing(int(self.options["tasks"]))


class _Nothing(DataSourceReader):
    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        import_module(READER)
        return iter(())
