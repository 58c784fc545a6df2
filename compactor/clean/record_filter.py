"""What a rewrite of runs leaves of them: said once, done by Spark on frames and by tasks on Arrow batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from compactor.fold import on_spark as fold
from compactor.runs.scan import LOG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RecordFilter(Struct, frozen=True, kw_only=True):
    """`by_key`: only the latest record of every key, and none that has no key or was rejected; else every record.

    `horizons`, by number of the slice: a tombstone whose horizon has passed at `now_ms` goes, one that has none gets
    its slice's (`tombstones.fate` decides the same of a single one). None: tombstones stay as they are.
    """

    by_key: bool = True
    horizons: tuple[int, ...] | None = None
    now_ms: int = 0

    def of(self, logs: Sequence[int]) -> RecordFilter:
        """The same for the slices numbered `logs` alone, which are numbered anew."""
        return self if self.horizons is None else replace(self, horizons=tuple(self.horizons[log] for log in logs))

    def on_spark(self, frame: DataFrame) -> DataFrame:
        """What of a scan (`scan.SCAN`) is kept."""
        if not self.by_key:
            return frame
        kept = fold.survivors(frame)
        return kept if self.horizons is None else _without_expired(kept, self.horizons, self.now_ms)

    def of_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What is kept of `batch` (`scan.SCAN`). With `by_key` it must hold rows of `fold.latest` alone."""
        if not self.by_key:
            return batch
        folds = pc.and_(pc.is_null(batch["rejected"]), pc.is_valid(batch["key"]))
        kept = batch if pc.all(folds, min_count=0).as_py() else batch.filter(folds)
        return kept if self.horizons is None else _stamped(kept, self.horizons, self.now_ms)


def _stamped(batch: pa.RecordBatch, horizons: Sequence[int], now_ms: int) -> pa.RecordBatch:
    tombstone, horizon = pc.is_null(batch["value"]), batch["delete_horizon"]
    own = pa.array(horizons, pa.int64()).take(batch[LOG])
    stamped = pc.if_else(tombstone, pc.coalesce(horizon, own), None)
    kept = batch.set_column(batch.schema.get_field_index("delete_horizon"), "delete_horizon", stamped)
    passed = pc.and_(tombstone, pc.coalesce(pc.less_equal(horizon, now_ms), False))
    return kept.filter(pc.invert(passed))


def _without_expired(survivors: DataFrame, horizons: Sequence[int], now_ms: int) -> DataFrame:
    from pyspark.sql.functions import coalesce, col, expr, when

    horizon = col("delete_horizon")
    tombstone = col("value").isNull()
    stamp = expr(f"array({', '.join(f'{one}L' for one in horizons) or '0L'})[{LOG}]")
    passed = tombstone & horizon.isNotNull() & (horizon <= now_ms)
    return survivors.where(~passed).withColumn("delete_horizon", when(tombstone, coalesce(horizon, stamp)))
