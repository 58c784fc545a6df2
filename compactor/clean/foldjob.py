"""Rewrites runs of any size with Spark's fold, which spills: slices of many logs in, new files by (log, offset) out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from compactor.clean.rewriteplan import RewritePlan
from compactor.fold import on_spark
from compactor.fold.task_split import Share, shares
from compactor.fold.throttler import Throttler, paced
from compactor.model import record
from compactor.runs import file_stats, writer
from compactor.runs.file_stats import FileStats
from compactor.runs.scan import LOG
from compactor.runs.writer import RunTarget
from compactor.spark.errors import tagging, unwrapping
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TASK: Final = "task"


def rewrite(spark: SparkSession, storage: Storage, what: RewritePlan) -> tuple[tuple[FileStats, ...], ...]:
    """The parts that were written of each slice, by offset. Raises StorageError, FoldError."""
    cores = spark.sparkContext.defaultParallelism
    pace, target, failpoint = Throttler.shared(what.limit, cores), what.target, what.failpoint

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tagging():
            yield from _write(pace.kept(batches), target, failpoint)

    frame = what.keep.on_spark(paced(on_spark.scan(spark, storage, what.slices), pace))
    with unwrapping():
        ordered = _ordered(frame, shares(what.slices, target.max_bytes, cores))
        rows = ordered.mapInArrow(task, record.ddl(file_stats.FILE_STATS)).collect()
    return file_stats.by_range(what.slices, [file_stats.from_row(row.asDict()) for row in rows])


def _write(batches: Iterable[pa.RecordBatch], target: RunTarget, failpoint: str) -> Iterator[pa.RecordBatch]:
    rows = (batch.cast(record.RUN) for batch in batches if batch.num_rows)
    for part in writer.write(rows, target, failpoint):
        yield file_stats.to_batch([part])


def _ordered(kept: DataFrame, cut: Sequence[Share]) -> DataFrame:
    """One Spark partition for each share, in it the logs one after the other, by offset."""
    numbered = kept.withColumn(_TASK, _share_of(cut))
    placed = numbered.repartitionById(cut[-1].task + 1, _TASK) if cut else numbered
    return placed.sortWithinPartitions(LOG, "offset").select(*record.RUN.names)


def _share_of(cut: Sequence[Share]) -> Column:
    """The task of a row, by its log and, where a log has several shares, by its offset."""
    from pyspark.sql.functions import col, expr, lit, when

    first = {share.log: share.task for share in reversed(cut)}
    tasks = ", ".join(str(first.get(log, 0)) for log in range(max(first, default=0) + 1))
    further = lit(0)
    for share in (share for share in cut if share.task != first[share.log]):
        above = (col(LOG) == share.log) & (col("offset") >= share.start)
        further = further + when(above, lit(1)).otherwise(lit(0))
    return (expr(f"array({tasks})[{LOG}]") + further).cast("int")
