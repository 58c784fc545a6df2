"""Reads one connector's offer in a job of its own: what is large, was left by a micro-batch, or made one fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from compactor.ingest.appends import Batch
from compactor.ingest.ingest import WRITTEN, portions
from compactor.spark import tasks
from compactor.turns import turn
from connectors.registry.patience import Patience
from connectors.source import plan
from connectors.source.options import SourceOptions
from connectors.source.plan import ReadSplit
from connectors.source.reader import read
from connectors.source.source_errors import reading_stopped
from connectors.source.subscription import Alone
from connectors.source.transformed import write_transformed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALONE_IN_DRIVER_MAX: Final = 20_000
"""Offsets that are read in this process at most: more than of a micro-batch, as no other connector waits for these."""

_one_at_a_time: Final = threading.Lock()
"""Held while Spark's tasks read much alone: in all but one of its tasks, so that micro-batches find a free one."""


def read_alone(spark: SparkSession, alone: Alone, stopped: Callable[[], bool]) -> Batch:
    """Reads an offer to its end and writes it into files (steps 2 and 3); returns what was written.

    Once `stopped` returns True it ends soon. Raises what `reader.read` raises, and StorageError.
    """
    offer, options = alone.offer, alone.offer.options
    if plan.size(offer.ranges) <= ALONE_IN_DRIVER_MAX:
        whole = ReadSplit(offer.ranges)
        if alone.suspect:  # it may end the process that reads it
            return _batch(tasks.run(spark, 1, _reading([whole], options), WRITTEN))
        return _batch(row for batch in _written(whole, options, stopped) for row in batch.to_pylist())
    splits = plan.splits(offer.ranges, min(options.limits.tasks_max, max(1, spark.sparkContext.defaultParallelism - 1)))
    with turn(_one_at_a_time, stopped) as mine:
        if not mine:
            raise reading_stopped(options.connector)
        return _batch(tasks.run(spark, len(splits), _reading(splits, options), WRITTEN))


def _reading(splits: list[ReadSplit], options: SourceOptions) -> Callable[[int], Iterator[pa.RecordBatch]]:
    """Returns what a task does: it is pickled, so it holds no lock."""

    def task(number: int) -> Iterator[pa.RecordBatch]:
        from connectors.logging_setup import configure_as_parent

        configure_as_parent()
        yield from _written(splits[number], options)

    return task


def _written(
    split: ReadSplit, options: SourceOptions, stopped: Callable[[], bool] = lambda: False
) -> Iterator[pa.RecordBatch]:
    """Reads and writes; a chain that waits for a registry waits alone, and as long as it is not `stopped`."""
    with closing(read(split, options, stopped)) as batches:
        yield from write_transformed(batches, options, patience=Patience(stopped=stopped))


def _batch(rows: Iterable[Mapping[str, Any]]) -> Batch:
    found = portions(rows)[0]
    assert isinstance(found, Batch)
    return found
