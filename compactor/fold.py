"""The fold on Spark: the latest record of every key over offset ranges of many partitions at once.

Offset map first, values second: group by (log, key) to the largest offset, fixed-width so that Spark
hash-aggregates and spills, then semi-join on (log, offset). Keys are compared byte by byte, and any number of
them fits: what does not fit into memory spills.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from compactor import record
from compactor.reading import Extent, Slice
from compactor.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LOG: Final = "log"
"""The column that numbers a scan's slices: a partition is grouped by 4 bytes instead of its topic's name."""

SCAN: Final = record.RUN.append(pa.field(LOG, pa.int32()))

_LITERALS: Final = 32
"""How many slices are written into the query at most, where Parquet's row groups are left out by them."""

_PATTERN: Final = re.compile(r"([\\*?\[\]{}])")
"""What Spark would take for a pattern in a folder's name."""

_EXTENTS: Final = pa.schema(
    [
        pa.field("file_name", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("extent_start", pa.int64()),
        pa.field("extent_end", pa.int64()),
        pa.field(LOG, pa.int32()),
    ]
)


def scan(spark: SparkSession, storage: Storage, slices: Sequence[Slice]) -> DataFrame:
    """The records of all `slices`: the columns of record.RUN, and `log`, the slice's number.

    A file may hold more than is asked for, even records of the same partition that a full fold has replaced:
    every row is held against what of its own file is wanted. No schema is looked for; an empty frame where
    no file is needed.
    """
    extents = tuple((number, extent) for number, part in enumerate(slices) for extent in part.extents)
    if not extents:
        return spark.createDataFrame([], record.ddl(SCAN))
    frame = _files(spark, storage, {extent.file.path for _, extent in extents})
    if len(slices) <= _LITERALS:
        frame = frame.where(_any(_inside(part) for part in slices))
        if _alike(extents):
            return frame.withColumn(LOG, _number(slices))
    return _held_against(spark, frame, extents)


def survivors(frame: DataFrame) -> DataFrame:
    """The latest record of every key in `frame` (columns as `scan` gives them); rejected records are left out."""
    from pyspark.sql.functions import col

    return latest(frame.where(col("rejected").isNull()))


def latest(frame: DataFrame) -> DataFrame:
    """The latest record of every key, and every rejected record, which is the latest of nothing."""
    from pyspark.sql.functions import col, when
    from pyspark.sql.functions import max as greatest

    alone = when(col("rejected").isNotNull(), col("offset"))
    last = frame.groupBy(LOG, "key", alone.alias("alone")).agg(greatest("offset").alias("offset"))
    return frame.join(last.select(LOG, "offset"), [LOG, "offset"], "left_semi")


def _files(spark: SparkSession, storage: Storage, paths: Iterable[str]) -> DataFrame:
    literal = (_PATTERN.sub(r"\\\1", storage.url(path)) for path in sorted(paths))
    return spark.read.schema(record.ddl(record.RUN)).parquet(*literal)


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(lambda one, other: one | other, conditions)


def _inside(part: Slice) -> Column:
    from pyspark.sql.functions import col

    offset = col("offset")
    return _of(part) & (offset >= part.start) & (offset < part.end)


def _of(part: Slice) -> Column:
    from pyspark.sql.functions import col

    return (col("topic") == part.tp.topic) & (col("partition") == part.tp.partition)


def _number(slices: Sequence[Slice]) -> Column:
    from pyspark.sql.functions import lit, when

    number = lit(0)
    for index, part in enumerate(slices[1:], start=1):
        number = when(_of(part), lit(index)).otherwise(number)
    return number.cast("int").alias(LOG)


def _alike(extents: Iterable[tuple[int, Extent]]) -> bool:
    """Whether every file is wanted by the same slices, and whole: then the slices' own bounds say it all."""
    wanted: dict[str, set[int]] = {}
    for number, extent in extents:
        if extent.file.first < extent.start or extent.file.last >= extent.end:
            return False
        wanted.setdefault(extent.file.path, set()).add(number)
    return len({frozenset(numbers) for numbers in wanted.values()}) == 1


def _held_against(spark: SparkSession, frame: DataFrame, extents: Sequence[tuple[int, Extent]]) -> DataFrame:
    from pyspark.sql.functions import broadcast, col

    rows = [
        (extent.file.path.rpartition("/")[2], *extent.tp, extent.start, extent.end, number)
        for number, extent in extents
    ]
    wanted = spark.createDataFrame(pa.table(list(map(list, zip(*rows, strict=True))), schema=_EXTENTS))
    named = frame.withColumn("file_name", col("_metadata.file_name"))
    inside = (col("offset") >= col("extent_start")) & (col("offset") < col("extent_end"))
    joined = named.join(broadcast(wanted), ["file_name", "topic", "partition"])
    return joined.where(inside).select(*SCAN.names)
