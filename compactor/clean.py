"""The full fold: base run and what is published above it become a new base run, one record per key.

Tombstones go in two steps (KIP-534): the first full fold that keeps one stamps its delete horizon, a later
one drops it once that has passed. So whoever follows the log has delete.retention.ms to read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from msgspec.structs import replace

from compactor import fold, parts, record, runfile
from compactor.actions import Clean
from compactor.faults import tagging, unwrapping
from compactor.log import BASE, PartitionLog, Run
from compactor.parts import Part
from compactor.policy import FOREVER, CompactionPolicy
from compactor.reading import Slice, between
from compactor.runfile import RunTarget
from compactor.shares import Share, shares
from compactor.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TASK: Final = "task"


def full_fold(
    spark: SparkSession,
    storage: Storage,
    logs: Sequence[PartitionLog],
    target: RunTarget,
    policy: CompactionPolicy,
    now_ms: int,
) -> tuple[Clean, ...]:
    """Step 13 for all `logs` in one Spark job: what replaces everything below each one's published offset.

    Files are rolled at policy.segment_bytes. Rejected records, which are sent by then, are not kept. Raises
    StorageError, FoldError.
    """
    slices = [between(log, log.start, log.published) for log in logs]
    rolled = replace(target, max_bytes=policy.segment_bytes)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tagging():
            yield from _write(batches, rolled)

    kept = _expired(fold.survivors(fold.scan(spark, storage, slices)), policy, now_ms)
    cut = shares(slices, policy.segment_bytes, spark.sparkContext.defaultParallelism)
    with unwrapping():
        rows = _ordered(kept, cut).mapInArrow(task, record.ddl(parts.PARTS)).collect()
    written = [parts.from_row(row.asDict()) for row in rows]
    return tuple(_clean(log, part, written) for log, part in zip(logs, slices, strict=True))


def _write(batches: Iterable[pa.RecordBatch], target: RunTarget) -> Iterator[pa.RecordBatch]:
    rows = (batch.cast(record.RUN) for batch in batches if batch.num_rows)
    for part in runfile.write(rows, target, "clean.write"):
        yield parts.to_batch([part])


def _expired(survivors: DataFrame, policy: CompactionPolicy, now_ms: int) -> DataFrame:
    """`survivors` without tombstones whose horizon has passed; those that have none yet get it now."""
    from pyspark.sql.functions import coalesce, col, lit, when

    horizon = col("delete_horizon")
    tombstone = col("value").isNull()
    stamp = lit(min(now_ms + policy.delete_retention_ms, FOREVER))
    passed = tombstone & horizon.isNotNull() & (horizon <= now_ms)
    return survivors.where(~passed).withColumn("delete_horizon", when(tombstone, coalesce(horizon, stamp)))


def _ordered(kept: DataFrame, cut: Sequence[Share]) -> DataFrame:
    """One Spark partition for each share, in it the logs one after the other, by offset."""
    numbered = kept.withColumn(_TASK, _share_of(cut))
    placed = numbered.repartitionById(cut[-1].task + 1, _TASK) if cut else numbered
    return placed.sortWithinPartitions(fold.LOG, "offset").select(*record.RUN.names)


def _share_of(cut: Sequence[Share]) -> Column:
    """The task of a row, by its log and, where a log has several shares, by its offset."""
    from pyspark.sql.functions import col, expr, lit, when

    first = {share.log: share.task for share in reversed(cut)}
    tasks = ", ".join(str(first.get(log, 0)) for log in range(max(first, default=0) + 1))
    further = lit(0)
    for share in (share for share in cut if share.task != first[share.log]):
        above = (col(fold.LOG) == share.log) & (col("offset") >= share.start)
        further = further + when(above, lit(1)).otherwise(lit(0))
    return (expr(f"array({tasks})[{fold.LOG}]") + further).cast("int")


def _clean(log: PartitionLog, part: Slice, written: Iterable[Part]) -> Clean:
    mine = sorted((one for one in written if one.tp == log.tp), key=lambda one: one.file.first)
    arrived = max((run.arrived_ms for run in part.runs), default=0)
    return Clean(topic=log.topic, partition=log.partition, end=log.published, base=_base(part, mine, arrived))


def _base(part: Slice, written: Sequence[Part], arrived_ms: int) -> Run:
    horizons = [one.next_horizon_ms for one in written if one.next_horizon_ms is not None]
    return Run(
        start=part.start,
        end=part.end,
        level=BASE,
        files=tuple(one.file for one in written),
        records=sum(one.file.records for one in written),
        bytes=sum(one.file.bytes for one in written),
        tombstones=sum(one.tombstones for one in written),
        max_timestamp=max((one.max_timestamp for one in written), default=-1),
        arrived_ms=arrived_ms,
        horizons=sum(one.horizons for one in written),
        next_horizon_ms=min(horizons, default=None),
    )
