"""Filters the records that a rewrite of runs keeps: in Arrow batches, which tasks fold, and in Spark's frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from compactor.clean import tombstones
from compactor.clean.winners import Winners
from compactor.fold.latest_per_key import is_foldable
from compactor.fold.on_spark import survivors
from compactor.model.record import ddl
from compactor.runs.scan import LOG, SCAN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RecordFilter(Struct, frozen=True, kw_only=True):
    """`FoldFilter` of a rewrite. `by_key`: only the latest record of every key; otherwise every record.

    `horizons`, by number of the range: each tombstone has the fate that `tombstones.fates` gives it at `now_ms`, and
    gets its range's horizon if that is to be stamped. None: tombstones stay as they are.

    `winners`: what loses to a record of another log of its topic goes, and a tombstone stays while a record of its key
    waits to be published (compaction.scope=topic).
    """

    by_key: bool = True
    horizons: tuple[int, ...] | None = None
    now_ms: int = 0
    winners: Winners | None = None

    def of(self, logs: Sequence[int]) -> RecordFilter:
        """See `FoldFilter.of`."""
        return self if self.horizons is None else replace(self, horizons=tuple(self.horizons[log] for log in logs))

    def on_spark(self, frame: DataFrame) -> DataFrame:
        """See `FoldFilter.on_spark`."""
        if not self.by_key:
            return frame
        kept = survivors(frame)
        if self.winners is not None:
            return kept.select(*SCAN.names).mapInArrow(self._of_batches, ddl(SCAN))
        return kept if self.horizons is None else _stamped_on_spark(kept, self.horizons, self.now_ms)

    def of_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """See `FoldFilter.of_batch`."""
        if not self.by_key:
            return batch
        folds = is_foldable(batch)
        kept = batch if pc.all(folds, min_count=0).as_py() else batch.filter(folds)
        if self.winners is not None:
            kept = kept.filter(pa.array(~self.winners.are_late(kept)))
        return kept if self.horizons is None else _stamped(kept, self.horizons, self.now_ms, self.winners)

    def _of_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(self.of_batch, batches)


def _stamped(
    batch: pa.RecordBatch, horizons: Sequence[int], now_ms: int, winners: Winners | None = None
) -> pa.RecordBatch:
    fates, horizon = tombstones.fates(batch, now_ms), batch["delete_horizon"]
    if winners is not None and fates.drop.true_count:
        fates = fates.without_dropped(_awaited(batch, fates.drop, winners))
    own = pa.array(horizons, pa.int64()).take(batch[LOG])
    stamped = pc.if_else(fates.stamp, own, pc.if_else(fates.keep, horizon, None))
    kept = batch.set_column(batch.schema.get_field_index("delete_horizon"), "delete_horizon", stamped)
    return kept.filter(pc.invert(fates.drop))


def _awaited(batch: pa.RecordBatch, dropped: pa.BooleanArray, winners: Winners) -> pa.BooleanArray:
    """Returns which of `batch` are `dropped`, and have a key of which a record waits to be published."""
    places = np.flatnonzero(dropped.to_numpy(zero_copy_only=False))
    awaited = np.zeros(batch.num_rows, np.bool_)
    awaited[places] = winners.are_awaited(batch.take(pa.array(places)))
    return pa.array(awaited)


def _stamped_on_spark(frame: DataFrame, horizons: Sequence[int], now_ms: int) -> DataFrame:
    from pyspark.sql.functions import col, expr, when

    fates = tombstones.fates_on_spark(col("value").isNull(), now_ms)
    own = expr(f"array({', '.join(f'{horizon}L' for horizon in horizons) or '0L'})[{LOG}]")
    stamped = when(fates.stamp, own).when(fates.keep, col("delete_horizon"))
    return frame.where(~fates.drop).withColumn("delete_horizon", stamped)
