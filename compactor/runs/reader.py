"""Reads runs without Spark: by offset, and no more of a file than the row groups that are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace

from compactor.model import record
from compactor.model.log import PartitionLog, Run, RunFile
from compactor.model.record import TopicPartition
from compactor.runs import checksums as footers
from compactor.storage.base import Storage

_MOST_PARTITION: Final = (1 << 31) - 1
"""The largest number that a partition can have."""

_ROWS: Final = 8192
"""A batch has as many records at most."""


class OffsetRange(Struct, frozen=True, kw_only=True):
    """The offsets [start, end) of one partition, and every run that overlaps them, by offset."""

    tp: TopicPartition
    start: int
    end: int
    runs: tuple[Run, ...]

    @property
    def extents(self) -> tuple[Extent, ...]:
        """What of which file belongs to the slice, by offset; no two overlap."""
        return tuple(
            Extent(tp=self.tp, file=file, start=max(self.start, run.start), end=min(self.end, run.end))
            for run in self.runs
            for file in sorted(run.files, key=lambda file: file.first)
            if file.first < min(self.end, run.end) and file.last >= max(self.start, run.start)
        )


class Extent(Struct, frozen=True, kw_only=True):
    """Of `file`, the records of `tp` with offsets [start, end).

    A file can hold more: other partitions, what a full fold has replaced since, and what is above a lag.
    """

    tp: TopicPartition
    file: RunFile
    start: int
    end: int


def between(log: PartitionLog, start: int, end: int) -> OffsetRange:
    """The offsets [start, end) of `log`."""
    kept = (log.base, *log.runs) if log.base else log.runs
    runs = tuple(run for run in kept if run.start < end and run.end > start)
    return OffsetRange(tp=log.tp, start=start, end=end, runs=tuple(sorted(runs, key=lambda run: run.start)))


def whole(log: PartitionLog) -> OffsetRange:
    """Everything that `log` keeps."""
    return between(log, log.start, log.end)


def read(storage: Storage, part: OffsetRange, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The records of `part` by offset; `columns` of record.RUN, all by default. Raises StorageError."""
    for extent in part.extents:
        yield from read_extent(storage, extent, columns)


def read_extent(storage: Storage, extent: Extent, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The records of one extent by offset; StorageError where its file cannot be opened."""
    names = list(columns or record.RUN.names)
    footers.check(storage, extent.file)
    with (
        storage.open_input(extent.file.path) as source,
        pq.ParquetFile(source, page_checksum_verification=True) as file,
    ):
        bounds = map(bounds_of, map(file.metadata.row_group, range(file.num_row_groups)))
        asked = extent.tp, extent.start, extent.end
        groups = [(group, one.tp is not None) for group, one in enumerate(bounds) if one.overlap(*asked)]
        for group, alone in groups:
            needed = {*names, "offset", *(() if alone else ("topic", "partition"))}
            # One by one: a batch would otherwise gather the rows of several.
            for batch in file.iter_batches(_ROWS, row_groups=[group], columns=[*needed]):
                rows = trimmed(batch if alone else _of(batch, extent.tp), extent.start, extent.end)
                if rows.num_rows:
                    yield rows.select(names)


class Bounds(Struct, frozen=True):
    """The smallest and the largest of what a row group holds."""

    least: TopicPartition
    most: TopicPartition
    first: int
    last: int

    @property
    def tp(self) -> TopicPartition | None:
        """Its partition; None where several share it."""
        return self.least if self.least == self.most else None

    def overlap(self, tp: TopicPartition, start: int, end: int) -> bool:
        """Whether it may hold anything of the offsets [start, end) of `tp`."""
        return self.least <= tp <= self.most and self.first < end and self.last >= start


def bounds_of(group: pq.RowGroupMetaData) -> Bounds:
    """Those of a row group of a run's file, whose rows are by topic and partition."""
    topic, partition, offset = (group.column(column).statistics for column in range(3))
    if topic.min == topic.max:
        least, most = ((topic.min, number) for number in (partition.min, partition.max))
    else:  # of which topic the smallest partition is nobody knows
        least, most = (topic.min, 0), (topic.max, _MOST_PARTITION)
    return Bounds(TopicPartition(*least), TopicPartition(*most), offset.min, offset.max)


def _of(batch: pa.RecordBatch, tp: TopicPartition) -> pa.RecordBatch:
    return batch.filter(pc.and_(pc.equal(batch["topic"], tp.topic), pc.equal(batch["partition"], tp.partition)))


def trimmed(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """The rows of `batch` with offsets [start, end)."""
    offsets = batch["offset"]
    inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
    return batch if pc.all(inside).as_py() else batch.filter(inside)


def first_young(storage: Storage, log: PartitionLog, from_offset: int, newest_ms: int) -> int | None:
    """The first offset from `from_offset` on whose record is younger than `newest_ms`; None where none is.

    A record is never younger than its arrival (a stamp in the future would hold a partition for ever).
    Runs that cannot hold a young record are not opened.
    """
    part = between(log, from_offset, log.end)
    young = tuple(run for run in part.runs if min(run.max_timestamp, run.arrived_ms) > newest_ms)
    narrowed = replace(part, runs=young)
    return next(_young_offsets(read(storage, narrowed, ("offset", "timestamp")), newest_ms), None)


def _young_offsets(batches: Iterable[pa.RecordBatch], newest_ms: int) -> Iterator[int]:
    for batch in batches:
        row = pc.index(pc.greater(batch["timestamp"], newest_ms), True).as_py()
        if row >= 0:
            yield batch["offset"][row].as_py()
