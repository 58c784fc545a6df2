"""Gives Spark the source as a Python Data Source, `keyfold`: one stream for all connectors of a worker.

Spark makes these objects in its planner and worker processes, so they hold nothing but the options: the address at
which the driver answers (`driver_link.py`). What a micro-batch holds is planned there (`micro_batches.py`); a position
of the stream is the number of a micro-batch.

A worker's start waits for three planner processes, one after the other. So what reads, and Arrow, is imported in the
function that needs it.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from functools import cached_property
from multiprocessing.connection import Client
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME: Final = "keyfold"
_POSITION: Final = "batch"
_READS: Final = "read_int"
"""The function of PySpark that waits for what Spark asks next."""


class Address(Struct, frozen=True):
    """The path at which the driver listens, and the key by which a process may ask, which its repr does not show."""

    path: str
    key: str

    def __repr__(self) -> str:
        return f"Address({self.path!r})"


class DriverAnswers:
    """Asks the driver at `address` in the planner process, with one connection."""

    def __init__(self, address: Address) -> None:
        self._connection = Client(address.path, "AF_UNIX", authkey=address.key.encode())

    def ask(self, name: str, *arguments: int) -> Any:
        """Returns what the driver's `MicroBatches` answers to its method `name`; tasks are pickled."""
        self._connection.send((name, arguments))
        answered, answer = self._connection.recv()
        if not answered:
            raise RuntimeError(f"the driver could not plan: {answer}")
        return answer


class TaskPartition(InputPartition):
    """What one task reads of a micro-batch: a pickled `ReadTask`."""

    def __init__(self, task: bytes) -> None:
        super().__init__(task)
        self.task = task


class KafkaSource(DataSource):
    """The topics of all connectors of one worker.

    The options `socket` and `secret`, a name of which Spark shows the value in no plan, are an `Address`. The schema is
    WRITTEN of compactor/ingest/ingest.py.
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
        return self._driver.ask("begin")

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Returns the number after which a query without checkpoint begins: the last that was planned before it.

        The same each time: Spark asks again once the first micro-batch is planned, which begins there.
        """
        return {_POSITION: self._first}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802  # Spark's
        """Returns the next micro-batch's number, or `start` if nothing is to be read for a while."""
        latest = self._driver.ask("latest", start[_POSITION])
        return start if latest == start[_POSITION] else {_POSITION: latest}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Returns a task for each of the driver's."""
        return [TaskPartition(task) for task in self._driver.ask("tasks", start[_POSITION], end[_POSITION])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one task (`read_task.py`); yields rows of WRITTEN."""
        from connectors.logging_setup import configure_as_parent
        from connectors.source.read_task import read_task

        configure_as_parent()
        assert isinstance(partition, TaskPartition)
        yield from read_task(pickle.loads(partition.task))  # noqa: S301  # the driver's, through Spark

    def stop(self) -> None:
        """Ends the planner process if Spark has closed the socket to it, by which a query ends.

        PySpark would write that to the closed socket, and show the traces of both on stderr.
        """
        if _is_closed(sys.exception()):
            os._exit(0)


def _is_closed(error: BaseException | None) -> bool:
    """Returns whether `error` says that PySpark has no more to read from Spark; the driver's link raises others."""
    frames = [] if error is None else [frame.f_code.co_name for frame, _ in walk_tb(error.__traceback__)]
    return isinstance(error, EOFError) and frames[-1:] == [_READS]
