"""Counts on Spark what logs hold: the rows that come to the driver grow with logs, never with records or keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from compactor.analyze.analyze import EXAMPLES, Fold
from compactor.analyze.effect import Amount, Example, SplitKeys, Survivors
from compactor.analyze.preview import Count, RangeCounts
from compactor.clean.tombstones import Fate, fates_on_spark
from compactor.fold import on_spark
from compactor.fold.latest_per_key import compared_column, foldable_column
from compactor.model.log import PartitionLog
from compactor.model.order import FIELD, HEADER, LONG, TIMESTAMP
from compactor.model.record import ORDER_VALUE, TopicPartition
from compactor.runs.scan import LOG, OffsetRange, whole
from compactor.spark.errors import unwrapping
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

# The bound of a log that has fewer bounds than others: no offset is at or above it.
_BEYOND: Final = 2**63 - 1
_LIVE: Final = "live"
_TOPIC: Final = "topic"
_ORDER: Final = "order"
_FATES: Final = (_LIVE, *(fate.value for fate in Fate))
_SIZE: Final = (
    "bigint(coalesce(octet_length(key), 0)) + coalesce(octet_length(value), 0) + coalesce(aggregate(headers, 0L, "
    "(sum, header) -> sum + coalesce(octet_length(header.key), 0) + coalesce(octet_length(header.value), 0)), 0L)"
)
"""`record.measure` of one record."""


class SparkCounts:
    """`analyze.Counting` of `logs`: Spark aggregates what `on_spark.scan` reads of them."""

    def __init__(self, spark: SparkSession, storage: Storage, logs: Sequence[PartitionLog]) -> None:
        # By number of the log, as all lists here.
        self._tps = [log.tp for log in logs]
        self._sized = partial(sized, spark, storage, [whole(log) for log in logs])
        self.frame = self._sized()

    def range_counts(self, bounds: Sequence[tuple[int, ...]]) -> list[RangeCounts]:
        """See `Counting.range_counts`; in one job."""
        counts = _counts(self.frame, bounds)
        return [
            RangeCounts(own, tuple(counts.get((log, cell), Count()) for cell in range(len(own) - 1)))
            for log, own in enumerate(bounds)
        ]

    def survivors(self, folds: Sequence[Fold], now_ms: int) -> dict[Fold, list[Survivors]]:
        """See `Counting.survivors`; in one job, whatever the number of folds."""
        fates = _fates(last(self.frame, folds), now_ms)
        return {fold: [_survivors(fates, at, log) for log in range(len(fold))] for at, fold in enumerate(folds)}

    def winners(self, folds: Sequence[Fold], now_ms: int, order: str) -> dict[Fold, list[Survivors]]:
        """See `Counting.winners`; in one job."""
        fates = _fates(best(self._sized(order), folds, self._tps), now_ms)
        return {fold: [_survivors(fates, at, log) for log in range(len(fold))] for at, fold in enumerate(folds)}

    def split_keys(self, ranges: Fold) -> dict[str, SplitKeys]:
        """See `Counting.split_keys`; in one job if no key is in several partitions, else in four."""
        return split_keys(self.frame.where(inside(ranges)), self._tps)


def sized(spark: SparkSession, storage: Storage, ranges: Sequence[OffsetRange], order: str | None = None) -> DataFrame:
    """Reads `ranges` as `on_spark.scan` does, with values reduced to `size` and `deleted` (no value).

    With an `order`, also the value by which it compares records.
    """
    from pyspark.sql.functions import col, expr

    names = (LOG, "offset", "timestamp", "rejected", "delete_horizon")
    more = () if order is None else (_by(order).alias(_ORDER),)
    plain = on_spark.scan(spark, storage, ranges)
    deleted, size = col("value").isNull().alias("deleted"), expr(_SIZE).alias("size")
    return plain.select(*names, compared_column(), deleted, size, *more)


def _by(order: str) -> Column:
    """Returns `order.values_of` as an expression of Spark's that sorts in the same way; null is the lowest."""
    import pyspark.sql.functions as sf

    if order == TIMESTAMP:
        return sf.col("timestamp")
    if order.startswith(FIELD):
        return sf.when(sf.length(ORDER_VALUE) > 0, sf.col(ORDER_VALUE))
    name = order.removeprefix(HEADER)
    of_name = sf.filter("headers", lambda header: header["key"] == name)
    value = sf.try_element_at(of_name, sf.lit(-1))["value"]  # null if there is no such header
    # Longs sort as their bytes do, negative ones below the others.
    place = sf.struct((sf.hex(sf.substring(value, 1, 1)) < "80").alias("is_positive"), value.alias("bytes"))
    return sf.when(sf.length(value) == LONG, place)


def _counts(frame: DataFrame, bounds: Sequence[tuple[int, ...]]) -> dict[tuple[int, int], Count]:
    """Returns the count of each log and cell; a cell has the number of the bound at which it begins."""
    import pyspark.sql.functions as sf

    cells = frame.groupBy(LOG, _cell(bounds).alias("cell")).agg(
        sf.count("*").alias("records"),
        sf.sum("size").alias("bytes"),
        sf.count_if(~foldable_column()).alias("rejected"),
        sf.sum(sf.when(~foldable_column(), sf.col("size")).otherwise(0)).alias("rejected_bytes"),
        sf.min(sf.when(sf.col("timestamp") > 0, sf.col("timestamp"))).alias("oldest_ms"),
    )
    return {(row[0], row[1]): Count(**{name: row[name] for name in Count.__struct_fields__}) for row in rows(cells)}


def _cell(bounds: Sequence[tuple[int, ...]]) -> Column:
    """Returns the cell of a row: how many of its log's bounds, but for the first, are not above its offset."""
    from pyspark.sql.functions import col, lit

    cell = lit(0)
    for at in range(1, max(map(len, bounds), default=1) - 1):
        bound = of_log([own[at] if at < len(own) else _BEYOND for own in bounds])
        cell = cell + (col("offset") >= bound).cast("int")
    return cell


def inside(ranges: Fold) -> Column:
    """Returns whether the fold of a row's log takes the row, which may be the latest of its key."""
    from pyspark.sql.functions import col

    starts, ends = zip(*ranges, strict=True)
    in_range = (col("offset") >= of_log(starts)) & (col("offset") < of_log(ends))
    return in_range & foldable_column()


def last(frame: DataFrame, folds: Sequence[Fold]) -> DataFrame:
    """Returns the last records of all keys in `frame`, once for each `fold` (by number) in which they are that.

    In one pass: by (log, key) the largest offset within each fold, fixed-width, then the records at these.
    """
    import pyspark.sql.functions as sf

    offsets = sf.array(*(sf.max(sf.when(inside(fold), sf.col("offset"))) for fold in folds))
    last = frame.groupBy(LOG, "key").agg(offsets.alias("offsets"))
    places = last.select(LOG, sf.posexplode("offsets").alias("fold", "offset")).where(sf.col("offset").isNotNull())
    return frame.join(places.hint(on_spark.SPILLING), [LOG, "offset"])


def best(frame: DataFrame, folds: Sequence[Fold], tps: Sequence[TopicPartition]) -> DataFrame:
    """Returns what `last` does, of the records that win over all logs of a topic: by order, then partition and offset.

    Tombstones of offsets below 0, with which a generation begins, lose to all others.
    """
    import pyspark.sql.functions as sf

    topics = sorted({tp.topic for tp in tps})
    topic, partition = of_log(topics.index(tp.topic) for tp in tps), of_log(tp.partition for tp in tps)
    place = sf.struct((sf.col("offset") >= 0).alias("is_source"), _ORDER, partition.alias("partition"), "offset", LOG)
    places = sf.array(*(sf.max(sf.when(inside(fold), place)) for fold in folds))
    grouped = frame.groupBy(topic.alias(_TOPIC), "key").agg(places.alias("places"))
    winners = grouped.select(sf.posexplode("places").alias("fold", "place")).where(sf.col("place").isNotNull())
    named = winners.select("fold", sf.col(f"place.{LOG}").alias(LOG), sf.col("place.offset").alias("offset"))
    return frame.join(named.hint(on_spark.SPILLING), [LOG, "offset"])


def _fates(last: DataFrame, now_ms: int) -> dict[tuple[int, int, str], Row]:
    """Returns one row of sums for each fold, log and fate."""
    import pyspark.sql.functions as sf

    fates = last.groupBy("fold", LOG, _fate(now_ms).alias("fate")).agg(
        sf.count("*").alias("records"),
        sf.sum("size").alias("bytes"),
        sf.min("delete_horizon").alias("earliest"),
        sf.max("delete_horizon").alias("latest"),
    )
    return {(row[0], row[1], row[2]): row for row in rows(fates)}


def _fate(now_ms: int) -> Column:
    """Returns the name of a row's fate; `live` if it has a value."""
    from pyspark.sql.functions import col, when

    fates = fates_on_spark(col("deleted"), now_ms)
    tombstone_fate = (
        when(fates.stamp, Fate.STAMP.value).when(fates.keep, Fate.KEEP.value).when(fates.drop, Fate.DROP.value)
    )
    return tombstone_fate.otherwise(_LIVE)


def _survivors(sums: dict[tuple[int, int, str], Row], at: int, log: int) -> Survivors:
    own = {fate: sums[at, log, fate] for fate in _FATES if (at, log, fate) in sums}
    kept = own.get(Fate.KEEP.value)
    return Survivors(
        **{fate: Amount(row["records"], row["bytes"]) for fate, row in own.items()},
        earliest_horizon_ms=kept["earliest"] if kept else None,
        latest_horizon_ms=kept["latest"] if kept else None,
    )


def split_keys(frame: DataFrame, tps: Sequence[TopicPartition]) -> dict[str, SplitKeys]:
    """Returns the split keys of each topic that has any; `frame` has the foldable rows of `tps`."""
    import pyspark.sql.functions as sf
    from pyspark import StorageLevel

    topics = sorted({tp.topic for tp in tps})
    topic = of_log(topics.index(tp.topic) for tp in tps)
    numbered = placed(frame).withColumn(_TOPIC, topic)
    lives = sf.count_if(_LIVE).alias("lives")
    places = numbered.groupBy(_TOPIC, "key").agg(lives, sf.count("*").alias("places"))
    several = places.where("places > 1 AND lives > 0").persist(StorageLevel.DISK_ONLY)
    try:
        counts = {row[0]: row[1] for row in rows(several.groupBy(_TOPIC).agg(sf.count_if(sf.col("lives") > 1)))}
        if not counts:
            return {}
        named = _smallest(several.where("lives > 1"))
        outdated = _outdated(frame.withColumn(_TOPIC, topic), several, tps)
    finally:
        several.unpersist()
    examples = _examples(numbered.where(_LIVE), named, tps) if named else {}
    return {
        topics[topic]: SplitKeys(
            keys=counts[topic],
            examples=examples.get(topic, ()),
            outdated=Amount(row["records"], row["bytes"]),
            deleted=row["deleted"],
        )
        for topic, row in outdated.items()
        if row["records"]
    }


def placed(frame: DataFrame) -> DataFrame:
    """Returns (log, key, live) of the keys in `frame`; live if the last record is also the last one with a value."""
    import pyspark.sql.functions as sf

    valued = sf.when(~sf.col("deleted"), sf.col("offset"))
    last = frame.groupBy(LOG, "key").agg(sf.max("offset").alias("last"), sf.max(valued).alias("valued"))
    return last.select(LOG, "key", sf.col("last").eqNullSafe(sf.col("valued")).alias(_LIVE))


def _outdated(frame: DataFrame, several: DataFrame, tps: Sequence[TopicPartition]) -> dict[int, Row]:
    """Returns by topic how many live records of the keys `several` are not the latest one, and what they come to.

    Only rows of these keys are compared by more than their offsets, which Spark has to sort.
    """
    import pyspark.sql.functions as sf

    own = frame.join(several.select(_TOPIC, "key").hint(on_spark.SPILLING), [_TOPIC, "key"])
    last = own.groupBy(_TOPIC, LOG, "key").agg(
        sf.max(sf.struct("offset", "timestamp", "deleted", "size")).alias("last")
    )
    partition = of_log(tp.partition for tp in tps).alias("partition")
    latest = sf.max(sf.struct("last.timestamp", partition, "last.deleted", "last.size")).alias("latest")
    live, of_latest = ~sf.col("last.deleted"), ~sf.col("latest.deleted")
    by_key = last.groupBy(_TOPIC, "key").agg(
        latest, sf.count_if(live).alias("lives"), sf.sum(sf.when(live, sf.col("last.size")).otherwise(0)).alias("bytes")
    )
    sums = by_key.groupBy(_TOPIC).agg(
        sf.sum(sf.col("lives") - of_latest.cast("int")).alias("records"),
        sf.sum(sf.col("bytes") - sf.when(of_latest, sf.col("latest.size")).otherwise(0)).alias("bytes"),
        sf.count_if(~of_latest).alias("deleted"),
    )
    return {row[_TOPIC]: row for row in rows(sums)}


def _smallest(split: DataFrame) -> tuple[tuple[int, bytes], ...]:
    """Returns (topic, key) of each topic's examples, in their order."""
    from pyspark.sql import Window
    from pyspark.sql.functions import col, row_number

    order = row_number().over(Window.partitionBy(_TOPIC).orderBy("key"))
    smallest = split.withColumn("number", order).where(col("number") <= EXAMPLES)
    return tuple(sorted((row[_TOPIC], bytes(row["key"])) for row in rows(smallest)))


def _examples(
    living: DataFrame, named: Sequence[tuple[int, bytes]], tps: Sequence[TopicPartition]
) -> dict[int, tuple[Example, ...]]:
    """Finds the partitions of the keys that are `named`; no other key is looked for."""
    from pyspark.sql.functions import col

    places: dict[tuple[int, bytes], list[int]] = {}
    for row in rows(living.where(col("key").isin(list({key for _, key in named})))):
        places.setdefault((row[_TOPIC], bytes(row["key"])), []).append(tps[row[LOG]].partition)
    return {
        topic: tuple(Example(key, tuple(sorted(places[topic, key]))) for _, key in own)
        for topic, own in groupby(named, key=lambda pair: pair[0])
    }


def rows(frame: DataFrame) -> list[Row]:
    """Collects `frame`. Raises StorageError."""
    with unwrapping():
        return frame.collect()


def of_log(values: Iterable[int]) -> Column:
    """Returns the one of `values`, which are by number of the log, that is of a row's log."""
    from pyspark.sql.functions import expr

    return expr(f"array({', '.join(f'{value}L' for value in values)})[{LOG}]")
