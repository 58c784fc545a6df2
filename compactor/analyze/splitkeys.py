"""Keys that live in more than one partition of a topic, found on Spark.

A log is compacted by itself, as in Kafka: where a custom partitioner or a changed number of partitions has put one key
into several, each keeps a last record of it for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from compactor.analyze.counting import EXAMPLES
from compactor.analyze.effect import Example, SplitKeys
from compactor.analyze.sparkrows import of_log, rows
from compactor.model.record import TopicPartition
from compactor.runs.scan import LOG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOPIC: Final = "topic"


def split_keys(frame: DataFrame, tps: Sequence[TopicPartition]) -> dict[str, SplitKeys]:
    """Of each topic the keys that several of its partitions have live: `frame` has what is folded of the logs `tps`."""
    from pyspark import StorageLevel
    from pyspark.sql.functions import col
    from pyspark.sql.functions import count as counted

    topics = sorted({tp.topic for tp in tps})
    numbered = live(frame).withColumn(_TOPIC, of_log(topics.index(tp.topic) for tp in tps))
    places = numbered.groupBy(_TOPIC, "key").agg(counted("*").alias("places"))
    split = places.where(col("places") > 1).persist(StorageLevel.DISK_ONLY)
    try:
        counts = {row[0]: row[1] for row in rows(split.groupBy(_TOPIC).count())}
        named = _smallest(split) if counts else ()
    finally:
        split.unpersist()
    examples = _examples(numbered, named, tps) if named else {}
    return {topics[topic]: SplitKeys(keys=count, examples=examples[topic]) for topic, count in counts.items()}


def live(frame: DataFrame) -> DataFrame:
    """(log, key) of the keys in `frame` whose last record has a value: it is the last of those with one, too."""
    from pyspark.sql.functions import col, when
    from pyspark.sql.functions import max as greatest

    valued = when(~col("deleted"), col("offset"))
    last = frame.groupBy(LOG, "key").agg(greatest("offset").alias("last"), greatest(valued).alias("valued"))
    return last.where(col("last") == col("valued")).select(LOG, "key")


def _smallest(split: DataFrame) -> tuple[tuple[int, bytes], ...]:
    """(topic, key) of each topic's examples, in their order."""
    from pyspark.sql import Window
    from pyspark.sql.functions import col, row_number

    order = row_number().over(Window.partitionBy(_TOPIC).orderBy("key"))
    found = split.withColumn("number", order).where(col("number") <= EXAMPLES)
    return tuple(sorted((row[_TOPIC], bytes(row["key"])) for row in rows(found)))


def _examples(
    living: DataFrame, named: Sequence[tuple[int, bytes]], tps: Sequence[TopicPartition]
) -> dict[int, tuple[Example, ...]]:
    """Where the keys live that are `named`: only these are looked for."""
    from pyspark.sql.functions import col

    places: dict[tuple[int, bytes], list[int]] = {}
    for row in rows(living.where(col("key").isin(list({key for _, key in named})))):
        places.setdefault((row[_TOPIC], bytes(row["key"])), []).append(tps[row[LOG]].partition)
    return {
        topic: tuple(Example(key, tuple(sorted(places[topic, key]))) for _, key in own)
        for topic, own in groupby(named, key=lambda one: one[0])
    }
