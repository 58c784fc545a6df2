"""As much of Spark as jobs of numbered tasks ask for (`compactor.sparktasks`), worked off in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_spark() -> SparkSession:
    """Runs tasks one after the other, in the process of the test; knows no SQL."""
    return cast("SparkSession", _Spark())


class _Spark:
    sparkContext = SimpleNamespace(defaultParallelism=2)  # noqa: N815 - Spark's name

    def range(self, start: int, end: int, _step: int, _partitions: int) -> _Numbers:
        return _Numbers(range(start, end))


class _Numbers:
    def __init__(self, numbers: range) -> None:
        self._numbers = numbers
        self._task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]] = iter

    def mapInArrow(self, task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], _ddl: str) -> _Numbers:  # noqa: N802 - Spark's name
        self._task = task
        return self

    def collect(self) -> list[_Row]:
        """The rows of all tasks."""
        batches = (pa.RecordBatch.from_pydict({"id": [number]}) for number in self._numbers)
        return [_Row(row) for batch in batches for found in self._task([batch]) for row in found.to_pylist()]


class _Row:
    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def asDict(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._fields
