"""Reads what one task of a micro-batch is to read and writes it into files: steps 2 and 3, in a Spark task or here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import structlog

from compactor.errors import KeyfoldError
from compactor.ingest.ingest import error_row, write_level0
from compactor.spark.errors import tagging
from connectors.source.bounded_reader import read_bounded
from connectors.source.micro_batches import PortionSplit, ReadTask
from connectors.source.reader import read

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


def write_portion(portion: PortionSplit, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Writes what was read of a portion within bounds; returns rows of `ingest.WRITTEN`, none where that failed."""
    try:
        return list(_written(portion, batches))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is this connector's
        name = portion.options.connector
        _log.debug("portion is left for a job of its own", connector=name, error=str(error))
        return []


def _written(portion: PortionSplit, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    intake = portion.options.intake
    assert intake is not None
    with tagging():
        yield from write_level0(batches, intake, portion.portion)
