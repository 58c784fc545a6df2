"""A job of tasks that are told by number what they do, and answer with rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from compactor.model import record
from compactor.spark.errors import tagging, unwrapping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    spark: SparkSession, count: int, task: Callable[[int], Iterable[pa.RecordBatch]], answers: pa.Schema
) -> list[dict[str, Any]]:
    """The rows (`answers`) of `task(number)` for each number below `count`, which is a Spark task for each.

    `task` is pickled with all that it holds. What it raises of KeyfoldError is raised as it was.
    """

    def of_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tagging():
            for batch in batches:
                for number in batch["id"].to_pylist():
                    yield from task(number)

    if count == 0:
        return []
    with unwrapping():
        rows = spark.range(0, count, 1, count).mapInArrow(of_numbers, record.ddl(answers)).collect()
    return [row.asDict() for row in rows]
