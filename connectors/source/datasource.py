"""Gives Spark the source as a Python Data Source, `keyfold`: one stream for all connectors of a worker.

Spark makes these objects anew in planner and worker processes, so they hold nothing but the options: where the driver
answers (`driver_link.py`). What a micro-batch holds is planned there (`micro_batches.py`); a position of the stream is
the number of a micro-batch. Errors leave tagged for `errors.unwrap` of compactor/spark.

What reads is imported where it is first used: most of the processes that a worker's start waits for do not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import structlog
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from compactor.errors import KeyfoldError
from compactor.ingest.ingest import WRITTEN, error_row, write_level0
from compactor.model.record import ddl
from compactor.spark.errors import tagging
from connectors.source.driver_link import Address, DriverAnswers

if TYPE_CHECKING:
    from connectors.source.micro_batches import PortionSplit, ReadTask

NAME: Final = "keyfold"
_POSITION: Final = "batch"

_log = structlog.get_logger()


class TaskPartition(InputPartition):
    """What one task reads of a micro-batch."""

    def __init__(self, task: ReadTask) -> None:
        super().__init__(task)
        self.task = task


class KafkaSource(DataSource):
    """The topics of all connectors of one worker.

    The options `socket` and `secret`, a name whose value Spark shows in no plan, are an `Address`.
    """

    @classmethod
    def name(cls) -> str:
        """Returns what `format(…)` is given."""
        return NAME

    def schema(self) -> str:
        """Returns `WRITTEN` of compactor/ingest/ingest.py."""
        return ddl(WRITTEN)

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
        return self._driver.number

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
        """Reads one task's share and writes it into files (steps 2 and 3); yields rows of WRITTEN."""
        from connectors.logging_setup import configure_as_parent
        from connectors.source.bounded_reader import read_bounded

        configure_as_parent()
        assert isinstance(partition, TaskPartition)
        task = partition.task
        if not task.bounded:
            for portion in task.portions:
                yield from read_whole(portion)
            return
        for portion, batches in read_bounded(task.portions):
            try:
                yield from list(_written(portion, batches))
            except KeyfoldError as error:  # its own job finds it again
                _log.debug(
                    "portion is left for a job of its own", connector=portion.options.connector, error=str(error)
                )


def read_whole(portion: PortionSplit) -> Iterator[pa.RecordBatch]:
    """Reads one portion however long it takes; yields rows of WRITTEN, or one that says why not."""
    from connectors.source.reader import read

    try:
        yield from list(_written(portion, read(portion.split, portion.options)))
    except KeyfoldError as error:
        yield error_row(portion.portion, error)


def _written(portion: PortionSplit, batches: Any) -> Iterator[pa.RecordBatch]:
    intake = portion.options.intake
    assert intake is not None
    with tagging():
        yield from write_level0(batches, intake, portion.portion)
