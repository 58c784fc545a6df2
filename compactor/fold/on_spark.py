"""Folds on Spark: finds the latest record of every key over offset ranges of many partitions at once.

Offset map first, values second: group by (log, key) to the largest offset, fixed-width so that Spark
hash-aggregates and spills, then semi-join on (log, offset). Keys are compared byte by byte, and any number of
them fits: what does not fit into memory spills. The join has a hint to sort and merge: by its own estimate, which goes
by the bytes of files, Spark would broadcast an offset map of any size, and a broadcast does not spill.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import or_
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor.errors import DEFECT, FoldError, MissingFileError
from compactor.fold.latest_per_key import Folded, FoldJob, Work, compared_column, foldable_column, rejected_column
from compactor.fold.task_scan import scan_in_tasks
from compactor.fold.task_split import RangeSplit, split_by_offset
from compactor.fold.throttler import Throttler
from compactor.model import record
from compactor.model.record import TopicPartition
from compactor.runs import checksums
from compactor.runs.scan import LOG, SCAN, FileRange, OffsetRange, files_of, plan_wide_reads
from compactor.spark.errors import KEY, briefly, tagging, unwrapping
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TASK: Final = "task"
_PLACED: Final = record.RUN.append(pa.field(_TASK, pa.int32()))
_MARK: Final = _PLACED.append(SCAN.field(LOG))

SPILLING: Final = "merge"
"""The hint for a join of what grows with keys: both sides are sorted and merged, even if one seems to be small."""

MAX_RANGES_NAMED: Final = 32
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

    A file may hold more than is asked for, even records of the same partition that a clean has replaced:
    every row is checked against the bounds of its own file. The schema is given, not inferred; the frame is
    empty if no file is needed. Raises MissingFileError, DamagedFileError.
    """
    if not storage.is_folder:
        return scan_in_tasks(spark, storage, ranges)
    for file in files_of(ranges).values():
        checksums.verify_footer(storage, file)
    reads = plan_wide_reads(ranges)
    alike: dict[frozenset[_Bounds], list[str]] = {}
    for path, own in reads.items():
        alike.setdefault(frozenset(file_range.bounds for file_range in own), []).append(path)
    if not alike:
        return spark.createDataFrame([], record.ddl(SCAN))
    if len(alike) > _QUERIES or max(map(len, alike)) > MAX_RANGES_NAMED:
        return _joined(spark, _files(spark, storage, reads), reads)
    queries = (_named(_files(spark, storage, paths), sorted(bounds)) for bounds, paths in alike.items())
    return reduce(lambda query, other: query.unionAll(other), queries)


def survivors(frame: DataFrame) -> DataFrame:
    """Returns the latest record of every key in `frame` (SCAN columns), and nothing that is the latest of none."""
    return latest(frame.where(foldable_column()))


def latest(frame: DataFrame) -> DataFrame:
    """Returns the latest record of every key in `frame` (SCAN columns), and every rejected record."""
    import pyspark.sql.functions as sf

    alone = sf.when(rejected_column(), sf.col("offset"))
    last = frame.groupBy(LOG, compared_column(), alone.alias("alone")).agg(sf.max("offset").alias("offset"))
    return frame.join(last.select(LOG, "offset").hint(SPILLING), [LOG, "offset"], "left_semi")


class OnSpark:
    """`LatestPerKey` on Spark: any amount, as what does not fit into memory spills."""

    def __init__(self, spark: SparkSession, storage: Storage) -> None:
        self._spark = spark
        self._storage = storage

    def run(self, job: FoldJob) -> Folded:
        """See `LatestPerKey.run`; no part of the job is left."""
        # A new session has Spark's defaults; the worker's session may switch off what is expensive for few rows.
        spark = self._spark.newSession()
        cores = spark.sparkContext.defaultParallelism
        throttler, work, answers = Throttler.shared(job.limit, cores), job.work(), record.ddl(job.answers)
        key = KEY

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with tagging(key):
                yield from _worked(batches, work)

        frame = job.keep.on_spark(throttler.on_spark(scan(spark, self._storage, job.ranges)))
        with unwrapping():
            rows = _placed(spark, job, frame, cores).mapInArrow(task, answers).collect()
        return Folded([row.asDict() for row in rows])


def _placed(spark: SparkSession, job: FoldJob, frame: DataFrame, cores: int) -> DataFrame:
    """Places rows in a Spark partition for each task, with its number, range after range by offset (_PLACED)."""
    if job.tasks is None:
        splits = split_by_offset(job.ranges, job.target_bytes, cores)
        numbered, last = frame.withColumn(_TASK, _task_of(splits)), max((split.task for split in splits), default=0)
    else:
        own = [(log, number) for number, logs in job.tasks.items() for log in logs]
        numbered = frame.withColumn(_TASK, _task_of([RangeSplit(log, 0, number) for log, number in sorted(own)]))
        # A row without topic comes first and begins each task, even if that has no record.
        marks = spark.createDataFrame(pa.Table.from_pylist([{_TASK: number, LOG: -1} for number in job.tasks], _MARK))
        numbered = numbered.select(*_MARK.names).unionAll(marks)
        last = max(job.tasks, default=0)
    ordered = numbered.repartitionById(last + 1, _TASK).sortWithinPartitions(LOG, "offset")
    return ordered.select(*_PLACED.names)


def _task_of(splits: Sequence[RangeSplit]) -> Column:
    """Returns the task of a row, by its log and, if the log has several splits, by its offset."""
    from pyspark.sql.functions import col, expr, lit, when

    first = {split.log: split.task for split in reversed(splits)}
    tasks = ", ".join(str(first.get(log, 0)) for log in range(max(first, default=0) + 1))
    further = lit(0)
    for split in (split for split in splits if split.task != first[split.log]):
        above = (col(LOG) == split.log) & (col("offset") >= split.start)
        further = further + when(above, lit(1)).otherwise(lit(0))
    return (expr(f"array({tasks})[{LOG}]") + further).cast("int")


def _worked(batches: Iterable[pa.RecordBatch], work: Work) -> Iterator[pa.RecordBatch]:
    """Gives, in a task, the records (_PLACED) of its Spark partition to `work`, and yields the answers."""
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is not None:
        number = first[_TASK][0].as_py()
        yield from work(number, _of_task(number, chain([first], rows)))


def _of_task(number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not pc.all(pc.equal(batch[_TASK], number), min_count=0).as_py():
            raise FoldError(f"Task {number} of a fold was given another task's records.", DEFECT)
        records = batch.slice(1) if batch["topic"].null_count else batch  # a mark comes first, and only there
        if records.num_rows:
            columns = [records[field.name].cast(field.type) for field in record.RUN]
            yield pa.RecordBatch.from_arrays(columns, schema=record.RUN)


def _files(spark: SparkSession, storage: Storage, paths: Iterable[str]) -> DataFrame:
    from pyspark.errors import AnalysisException

    literal = (_PATTERN.sub(r"\\\1", storage.url(path)) for path in sorted(paths))
    try:
        return spark.read.schema(record.ddl(record.RUN)).option(_CHECKSUMS, "true").parquet(*literal)
    except AnalysisException as error:
        raise MissingFileError(
            f"{storage.location}: files that the catalog names cannot be found: {briefly(error)}.",
            "See whether storage.location is mounted and complete.",
        ) from error


def _named(frame: DataFrame, bounds: Sequence[_Bounds]) -> DataFrame:
    """Selects the rows of `frame` that lie in `bounds`, with the number of their range."""
    from pyspark.sql.functions import col, lit, when

    def inside(bound: _Bounds) -> Column:
        _, tp, start, end = bound
        offset = col("offset")
        of_partition = (col("topic") == tp.topic) & (col("partition") == tp.partition)
        return of_partition & (offset >= start) & (offset < end)

    number = reduce(lambda other, bound: when(inside(bound), bound[0]).otherwise(other), bounds[1:], lit(bounds[0][0]))
    return frame.where(reduce(or_, map(inside, bounds))).withColumn(LOG, number.cast("int"))


def _joined(spark: SparkSession, frame: DataFrame, reads: Mapping[str, Sequence[FileRange]]) -> DataFrame:
    """Selects the rows of `frame` that are read of their own file, with the number of their range."""
    from pyspark.sql.functions import broadcast, col

    rows = [
        (path.rpartition("/")[2], *piece.tp, piece.start, piece.end, piece.log)
        for path, own in reads.items()
        for piece in own
    ]
    table = spark.createDataFrame(pa.table([list(column) for column in zip(*rows, strict=True)], schema=_READS))
    named = frame.withColumn("file_name", col("_metadata.file_name"))
    inside = (col("offset") >= col("range_start")) & (col("offset") < col("range_end"))
    return named.join(broadcast(table), ["file_name", "topic", "partition"]).where(inside).select(*SCAN.names)
