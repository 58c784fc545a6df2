"""Reads what one task of a micro-batch is to read and writes it into files: steps 2 and 3, in a Spark task or here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, wait
from contextlib import closing
from typing import Final

import pyarrow as pa
import structlog

from compactor.errors import KeyfoldError
from compactor.ingest.appends import Batch
from compactor.ingest.ingest import error_row, portions
from compactor.spark.errors import tagging
from connectors.errors import PortionLateError
from connectors.registry.patience import Patience
from connectors.source.assignment import PortionSplit, ReadTask
from connectors.source.reader import read, read_bounded
from connectors.source.transformed import write_transformed

PORTION_WAIT_S: Final = 1.0
"""How long (s) a portion's chain may wait for registries in a Spark task: several answers of one that is well, as each
of Spark's processes has to ask for itself."""
TASK_WAIT_S: Final = 2.0
"""How long (s) all portions of a task may wait for registries together: as long as they may take to be read. Those that
come when less than PORTION_WAIT_S is left of it ask none, and are read alone without being held for late."""
PORTION_TOTAL_S: Final = 5.0
"""How long (s) a portion's chain may take in all. A portion of 64 MiB or 200,000 records takes a few seconds at most; a
chain that is slower holds up the others with each portion."""
WRITTEN_S: Final = 10.0
"""How long (s) the driver waits for the portions that it has read to be written, and for how long a task begins with
those of further chains: twice what one may take."""
_log = structlog.get_logger()


def read_task(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """Reads the task's portions and writes them into files; yields rows of `ingest.WRITTEN`.

    Of a bounded task, a portion that cannot be written is missing in the answer, as one that cannot be read: a job of
    its own finds the reason again. Where its chain takes too long, a row of kind `error` says so. Of any other task
    such a row says why, and it may end early. A task without portions prepares its process for the next one.
    """
    if not task.portions:
        pa.array([""])  # Arrow imports pandas for the first array that it makes: a quarter of a second
    if task.bounded:
        yield from _read_within_bounds(task)
        return
    for portion in task.portions:
        try:
            with closing(read(portion.split, portion.options, early_end=task.early_end)) as records:
                rows = list(_written(portion, records, None))
        except KeyfoldError as error:
            yield error_row(portion.portion, error)
        else:
            yield from rows


def _read_within_bounds(task: ReadTask) -> Iterator[pa.RecordBatch]:
    left_s, until = TASK_WAIT_S, time.monotonic() + WRITTEN_S
    for portion, batches in read_bounded(task.portions):
        if portion.options.chain is not None and time.monotonic() >= until:
            continue  # the chains before it have taken all of the time: it is read alone
        patience = Patience(PORTION_WAIT_S if left_s >= PORTION_WAIT_S else 0.0, PORTION_TOTAL_S)
        yield from write_portion(portion, batches, patience)
        left_s -= patience.waited_s


def read_in_driver(
    tasks: Iterable[ReadTask], writers: Executor, deliver: Callable[[int, Batch | PortionLateError], None]
) -> None:
    """Reads a small micro-batch in this process; calls `deliver` for each portion as soon as `writers` have written it.

    Portions that cannot be read or written are missing, as those of a bounded task; so are those that are not written
    within WRITTEN_S. Registries are not waited for at all: a portion for which one has to be asked is read again by its
    connector's own thread, which learns the schema for the next ones.
    """

    def write(portion: PortionSplit, batches: Iterable[pa.RecordBatch]) -> None:
        patience = Patience(0.0, PORTION_TOTAL_S)
        rows = (row for batch in write_portion(portion, batches, patience) for row in batch.to_pylist())
        for number, found in portions(rows).items():
            if isinstance(found, Batch | PortionLateError):
                deliver(number, found)

    read_portions = (found for task in tasks for found in read_bounded(task.portions))
    late = wait([writers.submit(write, portion, batches) for portion, batches in read_portions], WRITTEN_S).not_done
    for one in late:  # those that have not begun never do; what the others still write is nobody's
        one.cancel()


def write_portion(portion: PortionSplit, batches: Iterable[pa.RecordBatch], patience: Patience) -> list[pa.RecordBatch]:
    """Writes what was read of a portion within bounds; returns rows of `ingest.WRITTEN`, none where that failed.

    Where its chain took too long, the one row says so.
    """
    name = portion.options.connector
    try:
        return list(_written(portion, batches, patience))
    except PortionLateError as error:
        return [error_row(portion.portion, error)]
    except Exception as error:  # noqa: BLE001  # whatever it is, it is this connector's
        _log.debug("portion is left for a job of its own", connector=name, error=str(error))
        return []


def _written(
    portion: PortionSplit, batches: Iterable[pa.RecordBatch], patience: Patience | None
) -> Iterator[pa.RecordBatch]:
    with tagging():
        yield from write_transformed(batches, portion.options, portion.portion, patience)
