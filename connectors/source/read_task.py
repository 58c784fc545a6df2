"""Reads what one task of a micro-batch is to read and writes it into files: steps 2 and 3, in a Spark task or here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, wait

import pyarrow as pa
import structlog

from compactor.errors import KeyfoldError
from compactor.ingest.appends import Batch
from compactor.ingest.ingest import error_row, portions
from compactor.spark.errors import tagging
from connectors.source.bounded_reader import read_bounded
from connectors.source.micro_batches import PortionSplit, ReadTask
from connectors.source.reader import read
from connectors.source.transformed import write_transformed

_log = structlog.get_logger()


def read_task(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """Reads the task's portions and writes them into files; yields rows of `ingest.WRITTEN`.

    Of a bounded task, a portion that cannot be written is missing in the answer, as one that cannot be read: a job of
    its own finds the reason again. Of any other, a row of kind `error` says why. A task without portions prepares its
    process for the next one.
    """
    if not task.portions:
        pa.array([""])  # Arrow imports pandas for the first array that it makes: a quarter of a second
    if task.bounded:
        for portion, batches in read_bounded(task.portions):
            yield from write_portion(portion, batches)
        return
    for portion in task.portions:
        try:
            yield from list(_written(portion, read(portion.split, portion.options)))
        except KeyfoldError as error:
            yield error_row(portion.portion, error)


def read_in_driver(tasks: Iterable[ReadTask], writers: Executor, deliver: Callable[[int, Batch], None]) -> None:
    """Reads a small micro-batch in this process; calls `deliver` for each portion as soon as `writers` have written it.

    Portions that cannot be read or written are missing, as those of a bounded task.
    """

    def write(portion: PortionSplit, batches: Iterable[pa.RecordBatch]) -> None:
        rows = (row for batch in write_portion(portion, batches) for row in batch.to_pylist())
        for number, found in portions(rows).items():
            if isinstance(found, Batch):
                deliver(number, found)

    read_portions = (found for task in tasks for found in read_bounded(task.portions))
    wait([writers.submit(write, portion, batches) for portion, batches in read_portions])


def write_portion(portion: PortionSplit, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Writes what was read of a portion within bounds; returns rows of `ingest.WRITTEN`, none where that failed."""
    try:
        return list(_written(portion, batches))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is this connector's
        name = portion.options.connector
        _log.debug("portion is left for a job of its own", connector=name, error=str(error))
        return []


def _written(portion: PortionSplit, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with tagging():
        yield from write_transformed(batches, portion.options, portion.portion)
