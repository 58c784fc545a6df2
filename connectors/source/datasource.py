"""Gives Spark the source as a Python Data Source, `keyfold`: one stream for all connectors of a worker.

Spark makes these objects anew in planner and worker processes, so they hold nothing but the options: where the driver
answers (`driver_link.py`). What a micro-batch holds is planned there (`micro_batches.py`); a position of the stream is
the number of a micro-batch.

What reads, and Arrow, is imported where it is first used: a worker's start waits for processes that plan, one after the
other, and none of them needs that.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from connectors.source.driver_answers import Address, DriverAnswers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME: Final = "keyfold"
_POSITION: Final = "batch"


class TaskPartition(InputPartition):
    """What one task reads of a micro-batch: a pickled `ReadTask`."""

    def __init__(self, task: bytes) -> None:
        super().__init__(task)
        self.task = task


class KafkaSource(DataSource):
    """The topics of all connectors of one worker.

    The options `socket` and `secret`, a name whose value Spark shows in no plan, are an `Address`. The schema is given
    by who loads it, `WRITTEN` of compactor/ingest/ingest.py.
    """

    @classmethod
    def name(cls) -> str:
        """Returns what `format(…)` is given."""
        return NAME

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  # Spark's
        """Returns the reader of micro-batches."""
        return StreamReader(Address(self.options["socket"], self.options["secret"]))


class StreamReader(DataSourceStreamReader):
    """Reads the micro-batches that the driver plans; a position is `{"batch": number}`."""

    def __init__(self, address: Address) -> None:
        self._address = address

    @cached_property
    def _driver(self) -> DriverAnswers:
        return DriverAnswers(self._address)

    @cached_property
    def _first(self) -> int:
        return self._driver.begin()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Returns where a query without checkpoint begins: behind what was planned for an earlier one.

        The same each time: Spark asks again once the first micro-batch is planned, whose begin this is.
        """
        return {_POSITION: self._first}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802  # Spark's
        """Returns the number of the next micro-batch; `start` itself where there is nothing to read for a while."""
        found = self._driver.latest(start[_POSITION])
        return start if found == start[_POSITION] else {_POSITION: found}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Returns a task for each of the driver's."""
        return [TaskPartition(task) for task in self._driver.tasks(start[_POSITION], end[_POSITION])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one task (`read_task.py`); yields rows of WRITTEN."""
        from connectors.logging_setup import configure_as_parent
        from connectors.source.read_task import read_task

        configure_as_parent()
        assert isinstance(partition, TaskPartition)
        yield from read_task(pickle.loads(partition.task))  # noqa: S301  # the driver's, through Spark
