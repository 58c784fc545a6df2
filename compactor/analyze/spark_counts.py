"""Counts what logs hold on Spark: what comes to the driver grows with logs, never with records or keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from compactor.analyze.counting import Fold
from compactor.analyze.effect import Amount, SplitKeys, Survivors
from compactor.analyze.preview import Count, RangeCounts
from compactor.analyze.sparkrows import of_log, rows
from compactor.analyze.splitkeys import split_keys
from compactor.clean.tombstones import Fate
from compactor.fold import on_spark
from compactor.model.log import PartitionLog
from compactor.runs.scan import LOG, OffsetRange, whole
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

_BEYOND: Final = 2**63 - 1
_LIVE: Final = "live"
_FATES: Final = (_LIVE, *(fate.value for fate in Fate))
_SIZE: Final = (
    "bigint(coalesce(octet_length(key), 0)) + coalesce(octet_length(value), 0) + coalesce(aggregate(headers, 0L, "
    "(sum, header) -> sum + coalesce(octet_length(header.key), 0) + coalesce(octet_length(header.value), 0)), 0L)"
)
"""`record.measure` of one record."""


class SparkCounting:
    """`counting.Counting` of `logs`: Spark aggregates what `on_spark.scan` reads of them."""

    def __init__(self, spark: SparkSession, storage: Storage, logs: Sequence[PartitionLog]) -> None:
        self._tps = [log.tp for log in logs]
        self.frame = sized(spark, storage, [whole(log) for log in logs])

    def censuses(self, bounds: Sequence[tuple[int, ...]]) -> list[RangeCounts]:
        """One job. As `Counting.censuses` says."""
        found = _counts(self.frame, bounds)
        return [
            RangeCounts(own, tuple(found.get((log, cell), Count()) for cell in range(len(own) - 1)))
            for log, own in enumerate(bounds)
        ]

    def survivors(self, folds: Sequence[Fold], now_ms: int) -> dict[Fold, list[Survivors]]:
        """One job, whatever the number of folds. As `Counting.survivors` says."""
        found = _fates(last(self.frame, folds), now_ms)
        return {one: [_survivors(found, at, log) for log in range(len(one))] for at, one in enumerate(folds)}

    def split_keys(self, ranges: Fold) -> dict[str, SplitKeys]:
        """One job where there are no such keys, else three. As `Counting.split_keys` says."""
        return split_keys(self.frame.where(inside(ranges)), self._tps)


def sized(spark: SparkSession, storage: Storage, slices: Sequence[OffsetRange]) -> DataFrame:
    """The records of `slices` as `on_spark.scan` reads them, values reduced to `size` and `deleted` (no value)."""
    from pyspark.sql.functions import col, expr

    names = (LOG, "offset", "timestamp", "key", "rejected", "delete_horizon")
    plain = on_spark.scan(spark, storage, slices)
    return plain.select(*names, col("value").isNull().alias("deleted"), expr(_SIZE).alias("size"))


def _counts(frame: DataFrame, bounds: Sequence[tuple[int, ...]]) -> dict[tuple[int, int], Count]:
    """By log and cell, which is the number of the bound at which it begins."""
    from pyspark.sql.functions import col, count_if, when
    from pyspark.sql.functions import count as counted
    from pyspark.sql.functions import min as least
    from pyspark.sql.functions import sum as added

    cells = frame.groupBy(LOG, _cell(bounds).alias("cell")).agg(
        counted("*").alias("records"),
        added("size").alias("bytes"),
        count_if(refused()).alias("rejected"),
        added(when(refused(), col("size")).otherwise(0)).alias("rejected_bytes"),
        least(when(col("timestamp") > 0, col("timestamp"))).alias("oldest_ms"),
    )
    return {(row[0], row[1]): Count(**{name: row[name] for name in Count.__struct_fields__}) for row in rows(cells)}


def _cell(bounds: Sequence[tuple[int, ...]]) -> Column:
    """Between which of its log's bounds a row lies: how many of them, but for the first, are not above its offset."""
    from pyspark.sql.functions import col, lit

    found = lit(0)
    for at in range(1, max(map(len, bounds), default=1) - 1):
        bound = of_log([own[at] if at < len(own) else _BEYOND for own in bounds])
        found = found + (col("offset") >= bound).cast("int")
    return found


def inside(ranges: Fold) -> Column:
    """Whether the fold of a row's log takes the row, which may be the latest of its key."""
    from pyspark.sql.functions import col

    starts, ends = zip(*ranges, strict=True)
    in_range = (col("offset") >= of_log(starts)) & (col("offset") < of_log(ends))
    return in_range & ~refused()


def refused() -> Column:
    """Whether a row is the latest of nothing, as for `on_spark.survivors`: it was rejected, or has no key."""
    from pyspark.sql.functions import col

    return col("rejected").isNotNull() | col("key").isNull()


def last(frame: DataFrame, folds: Sequence[Fold]) -> DataFrame:
    """The last records of all keys in `frame`, once for each `fold` (by number) in which they are that.

    In one pass: by (log, key) the largest offset within each fold, fixed-width, then the records at these.
    """
    from pyspark.sql.functions import array as arrayed
    from pyspark.sql.functions import col, posexplode, when
    from pyspark.sql.functions import max as greatest

    offsets = arrayed(*(greatest(when(inside(one), col("offset"))) for one in folds))
    last = frame.groupBy(LOG, "key").agg(offsets.alias("offsets"))
    places = last.select(LOG, posexplode("offsets").alias("fold", "offset")).where(col("offset").isNotNull())
    return frame.join(places.hint(on_spark.SPILLING), [LOG, "offset"])


def _fates(last: DataFrame, now_ms: int) -> dict[tuple[int, int, str], Row]:
    """By fold, log and fate what comes together."""
    from pyspark.sql.functions import count as counted
    from pyspark.sql.functions import max as greatest
    from pyspark.sql.functions import min as least
    from pyspark.sql.functions import sum as added

    fates = last.groupBy("fold", LOG, _fate(now_ms).alias("fate")).agg(
        counted("*").alias("records"),
        added("size").alias("bytes"),
        least("delete_horizon").alias("earliest"),
        greatest("delete_horizon").alias("latest"),
    )
    return {(row[0], row[1], row[2]): row for row in rows(fates)}


def _fate(now_ms: int) -> Column:
    """`tombstones.fate` of a row; of one with a value, that it lives."""
    from pyspark.sql.functions import col, when

    horizon = col("delete_horizon")
    tombstone = when(horizon.isNull(), Fate.STAMP.value).when(horizon <= now_ms, Fate.DROP.value)
    return when(~col("deleted"), _LIVE).otherwise(tombstone.otherwise(Fate.KEEP.value))


def _survivors(found: dict[tuple[int, int, str], Row], at: int, log: int) -> Survivors:
    own = {fate: found[at, log, fate] for fate in _FATES if (at, log, fate) in found}
    kept = own.get(Fate.KEEP.value)
    return Survivors(
        **{fate: Amount(row["records"], row["bytes"]) for fate, row in own.items()},
        earliest_horizon_ms=kept["earliest"] if kept else None,
        latest_horizon_ms=kept["latest"] if kept else None,
    )
