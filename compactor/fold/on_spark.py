"""The fold on Spark: the latest record of every key over offset ranges of many partitions at once.

Offset map first, values second: group by (log, key) to the largest offset, fixed-width so that Spark
hash-aggregates and spills, then semi-join on (log, offset). Keys are compared byte by byte, and any number of
them fits: what does not fit into memory spills. The join is told to sort and merge: by its own estimate, which goes
by the bytes of files, Spark would broadcast an offset map of any size, and a broadcast does not spill.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from compactor.errors import MissingFileError
from compactor.model import record
from compactor.model.record import TopicPartition
from compactor.runs import checksums
from compactor.runs.scan import LOG, SCAN, FileRange, OffsetRange, files_of, plan_wide_reads
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SPILLING: Final = "merge"
"""The hint for a join of what grows with keys: both sides are sorted and merged, also where one seems to be small."""

_LITERALS: Final = 32
"""How many ranges one query names at most; row groups that none of them needs are not read."""

_QUERIES: Final = 8
"""How many such queries a scan is put together from at most; beyond, ranges are a table to join with, which costs
twice the time of a fold."""

_Bounds = tuple[int, TopicPartition, int, int]
"""(log, partition, start, end) of what is read of a file (`FileRange.bounds`)."""

_CHECKSUMS: Final = "parquet.page.verify-checksum.enabled"
"""A damaged page is an error, never a record."""

_PATTERN: Final = re.compile(r"([\\*?\[\]{}])")
"""What Spark would take for a pattern in a folder's name."""

_READS: Final = pa.schema(
    [
        pa.field("file_name", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("range_start", pa.int64()),
        pa.field("range_end", pa.int64()),
        pa.field(LOG, pa.int32()),
    ]
)


def scan(spark: SparkSession, storage: Storage, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Reads the records of all `ranges`: the columns of SCAN, `log` being the number of a row's range.

    A file may hold more than is asked for, even records of the same partition that a full fold has replaced:
    every row is held against what is read of its own file. No schema is looked for; an empty frame where
    no file is needed. Raises MissingFileError, DamagedFileError.
    """
    for file in files_of(ranges).values():
        checksums.verify_footer(storage, file)
    reads = plan_wide_reads(ranges)
    alike: dict[frozenset[_Bounds], list[str]] = {}
    for path, own in reads.items():
        alike.setdefault(frozenset(one.bounds for one in own), []).append(path)
    if not alike:
        return spark.createDataFrame([], record.ddl(SCAN))
    if len(alike) > _QUERIES or max(map(len, alike)) > _LITERALS:
        return _joined(spark, _files(spark, storage, reads), reads)
    queries = (_named(_files(spark, storage, paths), sorted(bounds)) for bounds, paths in alike.items())
    return reduce(lambda one, other: one.unionAll(other), queries)


def survivors(frame: DataFrame) -> DataFrame:
    """The latest record of every key in `frame` (columns as `scan` gives them); rejected records are left out.

    So are records without a key, which only a log has that was not folded by key before (`LogValidator.validateKey`).
    """
    from pyspark.sql.functions import col

    return latest(frame.where(col("rejected").isNull() & col("key").isNotNull()))


def latest(frame: DataFrame) -> DataFrame:
    """The latest record of every key, and every rejected record, which is the latest of nothing."""
    from pyspark.sql.functions import col, when
    from pyspark.sql.functions import max as greatest

    alone = when(col("rejected").isNotNull(), col("offset"))
    last = frame.groupBy(LOG, "key", alone.alias("alone")).agg(greatest("offset").alias("offset"))
    return frame.join(last.select(LOG, "offset").hint(SPILLING), [LOG, "offset"], "left_semi")


def _files(spark: SparkSession, storage: Storage, paths: Iterable[str]) -> DataFrame:
    from pyspark.errors import AnalysisException

    literal = (_PATTERN.sub(r"\\\1", storage.url(path)) for path in sorted(paths))
    try:
        return spark.read.schema(record.ddl(record.RUN)).option(_CHECKSUMS, "true").parquet(*literal)
    except AnalysisException as error:
        raise MissingFileError(
            f"{storage.location}: files that the catalog names cannot be found: {error}.",
            "See whether storage.location is mounted and complete.",
        ) from error


def _named(frame: DataFrame, bounds: Sequence[_Bounds]) -> DataFrame:
    """Selects the rows of `frame` that lie in `bounds`, with the number of their range."""
    from pyspark.sql.functions import col, lit, when

    def inside(one: _Bounds) -> Column:
        _, tp, start, end = one
        offset = col("offset")
        of_partition = (col("topic") == tp.topic) & (col("partition") == tp.partition)
        return of_partition & (offset >= start) & (offset < end)

    number = reduce(lambda other, one: when(inside(one), one[0]).otherwise(other), bounds[1:], lit(bounds[0][0]))
    return frame.where(reduce(lambda one, other: one | other, map(inside, bounds))).withColumn(LOG, number.cast("int"))


def _joined(spark: SparkSession, frame: DataFrame, reads: Mapping[str, Sequence[FileRange]]) -> DataFrame:
    """Selects the rows of `frame` that are read of their own file, with the number of their range."""
    from pyspark.sql.functions import broadcast, col

    rows = [
        (path.rpartition("/")[2], *one.tp, one.start, one.end, one.log) for path, own in reads.items() for one in own
    ]
    table = spark.createDataFrame(pa.table([list(column) for column in zip(*rows, strict=True)], schema=_READS))
    named = frame.withColumn("file_name", col("_metadata.file_name"))
    inside = (col("offset") >= col("range_start")) & (col("offset") < col("range_end"))
    return named.join(broadcast(table), ["file_name", "topic", "partition"]).where(inside).select(*SCAN.names)
