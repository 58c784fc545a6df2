"""Reads one connector's offer in a job of its own: what is large, was left by a micro-batch, or made one fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import structlog

from compactor.ingest.appends import Batch
from compactor.ingest.ingest import WRITTEN, portions
from compactor.spark import tasks
from compactor.turns import turn
from connectors.errors import UnreachableError
from connectors.registry.patience import Patience
from connectors.source import plan
from connectors.source.assignment import NEVER, EarlyEnd
from connectors.source.options import SourceOptions
from connectors.source.plan import ReadSplit
from connectors.source.portion import Offer
from connectors.source.read_route import Route
from connectors.source.reader import read
from connectors.source.source_errors import reading_stopped
from connectors.source.transformed import write_transformed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STALLED: Final = EarlyEnd(idle_s=5.0)
"""When a read of Spark's tasks gives its turn back: enough time to find a log end behind which nothing is stable yet
(`reader.nothing_left`), while a minute, after which brokers count as unreachable, would be everybody's."""

_log = structlog.get_logger()

_one_at_a_time: Final = threading.Lock()
"""Held while Spark's tasks read much alone: in all but one of its tasks, so that micro-batches find a free one."""


def read_alone(spark: SparkSession, offer: Offer, stopped: Callable[[], bool]) -> Batch:
    """Reads an offer to its end and writes it into files (steps 2 and 3); returns what was written.

    A large one that makes no progress for a while ends early, so that others have their turn: then it is read in part,
    or not at all. Once `stopped` returns True it ends soon. Raises what `reader.read` raises, and StorageError.
    """
    options = offer.options
    if offer.route is not Route.LARGE_JOB:
        whole = ReadSplit(offer.ranges)
        if offer.route is Route.JOB:  # it may end the process that reads it
            return _batch(tasks.run(spark, 1, _reading([whole], options), WRITTEN))
        return _batch(row for batch in _written(whole, options, stopped) for row in batch.to_pylist())
    splits = plan.splits(offer.ranges, min(options.limits.tasks_max, max(1, spark.sparkContext.defaultParallelism - 1)))
    with turn(_one_at_a_time, stopped) as mine:
        if not mine:
            raise reading_stopped(options.connector)
        return _read_large(spark, splits, offer)


def _read_large(spark: SparkSession, splits: list[ReadSplit], offer: Offer) -> Batch:
    """Reads splits in tasks of Spark's. Brokers that do not answer leave all of it unread."""
    try:
        rows = tasks.run(spark, len(splits), _reading(splits, offer.options, STALLED), WRITTEN)
    except UnreachableError as error:
        _log.info("a large read is tried again in small", connector=offer.options.connector, reason=error.message)
        return Batch(ranges=(), parts=())
    return offer.without_holes(_batch(rows))


def _reading(
    splits: list[ReadSplit], options: SourceOptions, early_end: EarlyEnd = NEVER
) -> Callable[[int], Iterator[pa.RecordBatch]]:
    """Returns what a task does: it is pickled, so it holds no lock."""

    def task(number: int) -> Iterator[pa.RecordBatch]:
        from connectors.logging_setup import configure_as_parent

        configure_as_parent()
        yield from _written(splits[number], options, early_end=early_end)

    return task


def _written(
    split: ReadSplit,
    options: SourceOptions,
    stopped: Callable[[], bool] = lambda: False,
    early_end: EarlyEnd = NEVER,
) -> Iterator[pa.RecordBatch]:
    """Reads and writes; a chain that waits for a registry waits alone, and as long as it is not `stopped`."""
    with closing(read(split, options, stopped, early_end)) as batches:
        yield from write_transformed(batches, options, patience=Patience(stopped=stopped))


def _batch(rows: Iterable[Mapping[str, Any]]) -> Batch:
    found = portions(rows)[0]
    assert isinstance(found, Batch)
    return found
