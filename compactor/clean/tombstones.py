"""Decides when a tombstone is dropped: by the second clean at the earliest.

The rule is KIP-534's (`MemoryRecords.filterTo`, `shouldRetainRecord`). The first clean that keeps a tombstone has
removed the values before it, and stamps the delete horizon: its own time + delete.retention.ms, whatever the record's
timestamp. A later clean drops it once that has passed. A consumer that follows the log has the time between for reading
it. Merges of tiers keep tombstones and stamp nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from compactor.model.log import PartitionLog, Run
from compactor.settings import FOREVER, CompactionPolicy

if TYPE_CHECKING:
    from pyspark.sql import Column


class Fate(Enum):
    """What a clean does with a tombstone that is the last record of its key."""

    STAMP = "stamp"
    KEEP = "keep"
    DROP = "drop"


def fate(horizon_ms: int | None, now_ms: int) -> Fate:
    """Decides the fate of a tombstone: one without a horizon gets one, one with a horizon goes at it, not before.

    A horizon that is there stays as it is: a later change of delete.retention.ms does not move it.
    """
    if horizon_ms is None:
        return Fate.STAMP
    return Fate.DROP if now_ms >= horizon_ms else Fate.KEEP


class Fates(NamedTuple):
    """Which rows have which fate: masks of Arrow's, or expressions of Spark's; of a row with a value none is true."""

    stamp: Any
    keep: Any
    drop: Any

    def without_dropped(self, stay: pa.BooleanArray) -> Fates:
        """Returns the same, but for those of `stay`: they are kept, if they were to be dropped."""
        return self._replace(keep=pc.or_(self.keep, pc.and_(self.drop, stay)), drop=pc.and_not(self.drop, stay))


def fates(rows: pa.RecordBatch | pa.Table, now_ms: int) -> Fates:
    """Returns the `fate` of each of `rows` that is a tombstone, as masks; `rows` have `value` and `delete_horizon`."""
    is_tombstone, horizon_ms = pc.is_null(rows["value"]), rows["delete_horizon"]
    has_passed = pc.fill_null(pc.less_equal(horizon_ms, now_ms), fill_value=False)
    is_stamped = pc.and_(is_tombstone, pc.is_valid(horizon_ms))
    return Fates(
        stamp=pc.and_(is_tombstone, pc.is_null(horizon_ms)),
        keep=pc.and_not(is_stamped, has_passed),
        drop=pc.and_(is_stamped, has_passed),
    )


def fates_on_spark(is_tombstone: Column, now_ms: int) -> Fates:
    """Returns the `fate` of each row that is a tombstone, as expressions of Spark's over `delete_horizon`."""
    from pyspark.sql.functions import col

    horizon_ms = col("delete_horizon")
    is_stamped = is_tombstone & horizon_ms.isNotNull()
    return Fates(
        stamp=is_tombstone & horizon_ms.isNull(),
        keep=is_stamped & (horizon_ms > now_ms),
        drop=is_stamped & (horizon_ms <= now_ms),
    )


def horizon(log: PartitionLog, policy: CompactionPolicy, now_ms: int) -> int:
    """Returns the delete horizon that a clean of `log` at `now_ms` stamps, in ms; at most FOREVER.

    A clock that was set back since the last clean makes it no earlier than that one's: else the tombstone
    would be kept for a shorter time once the clock is right again.
    """
    return min(max(now_ms, log.last_full_fold_ms or now_ms) + policy.delete_retention_ms, FOREVER)


def unstamped(base: Run | None) -> int:
    """Counts tombstones of the base run that have no horizon yet: an older keyfold did not write one."""
    return max(0, base.tombstones - base.horizons) if base else 0


def passed(base: Run | None, now_ms: int) -> bool:
    """Returns whether a clean now would drop a tombstone of the base run, even if nothing new has come."""
    return base is not None and base.next_horizon_ms is not None and fate(base.next_horizon_ms, now_ms) is Fate.DROP
