"""Reads runs without Spark: by offset, and no more of a file than the row groups that are asked for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from compactor.model import record
from compactor.model.record import PARTITION, TopicPartition, partition_spans
from compactor.runs import checksums
from compactor.runs.group_notes import blank
from compactor.runs.scan import LOG, SCAN, FileRange, OffsetRange
from compactor.storage.base import Storage

_MOST_PARTITION: Final = (1 << 31) - 1
"""The largest number that a partition can have."""

_ROWS: Final = 8192
"""How many records a batch has at most."""

_TOGETHER: Final = 1 << 20
"""Bytes that are read at once of row groups that partitions share; of larger ones, columns are read side by side."""


def read(storage: Storage, offset_range: OffsetRange, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Reads the records of `offset_range` by offset; `columns` of record.RUN, all by default. Raises StorageError."""
    for file_range in offset_range.file_ranges:
        yield from read_file_range(storage, file_range, columns)


def read_file_range(
    storage: Storage, file_range: FileRange, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Reads the records of `file_range` by offset. Raises StorageError if its file cannot be opened."""
    names = list(columns or record.RUN.names)
    with checksums.open_verified(storage, file_range.file) as file:
        bounds = map(bounds_of, map(file.metadata.row_group, range(file.num_row_groups)))
        asked = file_range.tp, file_range.start, file_range.end
        groups = [(group, held.tp is not None) for group, held in enumerate(bounds) if held.overlap(*asked)]
        for group, alone in groups:
            needed = {*names, "offset", *(() if alone else ("topic", "partition"))}
            # One by one: a batch would otherwise gather the rows of several.
            for batch in file.iter_batches(_ROWS, row_groups=[group], columns=[*needed]):
                rows = trimmed(batch if alone else of_partition(batch, file_range.tp), file_range.start, file_range.end)
                if rows.num_rows:
                    yield completed(rows, names)


class Bounds(Struct, frozen=True):
    """The smallest and the largest of what a row group holds."""

    least: TopicPartition
    most: TopicPartition
    first: int
    last: int

    @property
    def tp(self) -> TopicPartition | None:
        """Its partition; None if several share it."""
        return self.least if self.least == self.most else None

    def overlap(self, tp: TopicPartition, start: int, end: int) -> bool:
        """Returns whether it may hold anything of the offsets [start, end) of `tp`."""
        return self.least <= tp <= self.most and self.first < end and self.last >= start


def bounds_of(group: pq.RowGroupMetaData) -> Bounds:
    """Returns the bounds of a row group of a run's file; its rows are by topic and partition."""
    topic, partition, offset = (group.column(column).statistics for column in range(3))
    if topic.min == topic.max:
        least, most = ((topic.min, number) for number in (partition.min, partition.max))
    else:  # the statistics do not say which topic has the smallest partition
        least, most = (topic.min, 0), (topic.max, _MOST_PARTITION)
    return Bounds(TopicPartition(*least), TopicPartition(*most), offset.min, offset.max)


def completed(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Returns `columns` of `batch`, with blank ones for those that older files lack, or that were not read."""
    held = batch.schema.names
    if held == list(columns):
        return batch
    arrays = [batch[name] if name in held else _blank(name, batch.num_rows) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=run_schema(tuple(columns)))


@lru_cache(maxsize=64)
def run_schema(columns: tuple[str, ...]) -> pa.Schema:
    """Returns the schema of these columns of record.RUN; to make it takes as long as to read one of them."""
    return pa.schema([record.RUN.field(name) for name in columns])


def _blank(name: str, count: int) -> pa.Array:
    return _one_blank(name) if count == 1 else blank(record.RUN.field(name), count)


@lru_cache(maxsize=64)
def _one_blank(name: str) -> pa.Array:
    return blank(record.RUN.field(name), 1)


def of_partition(batch: pa.RecordBatch, tp: TopicPartition) -> pa.RecordBatch:
    """Returns the rows of `tp` of a row group that several partitions share."""
    return batch.filter(pc.and_(pc.equal(batch["topic"], tp.topic), pc.equal(batch["partition"], tp.partition)))


def trimmed(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """Returns the rows of `batch` with offsets [start, end)."""
    offsets = batch["offset"]
    inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
    return batch if pc.all(inside).as_py() else batch.filter(inside)


def read_ranges(
    opened: pq.ParquetFile, ranges: Sequence[FileRange], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Reads `ranges` of one open file, in the file's order: `columns`, with `offset` among them, and `LOG`.

    Row groups that several partitions share are small, and read some at a time: each read has a price of its own.
    """
    wanted = _Wanted(ranges)
    shared = _SharedGroups(opened, wanted, columns)
    for group in range(opened.num_row_groups):
        about = opened.metadata.row_group(group)
        bounds = bounds_of(about)
        inside = wanted.overlapping(bounds)
        if not inside:
            continue
        if bounds.tp is None:
            yield from shared.add(group, about.total_byte_size)
            continue
        yield from shared.rest()
        rows = opened.read_row_group(group, list(columns), use_threads=about.total_byte_size > _TOGETHER)
        for batch in rows.to_batches():
            whole = completed(batch, columns)
            yield from (_numbered(whole, file_range) for file_range in inside)
    yield from shared.rest()


class _Wanted:
    """The ranges that are read of one file, by partition."""

    def __init__(self, ranges: Sequence[FileRange]) -> None:
        self._by_partition: dict[TopicPartition, list[FileRange]] = {}
        for file_range in ranges:
            self._by_partition.setdefault(file_range.tp, []).append(file_range)
        self._partitions = sorted(self._by_partition)

    def of(self, tp: TopicPartition) -> Sequence[FileRange]:
        """Returns the ranges of `tp`."""
        return self._by_partition.get(tp, ())

    def overlapping(self, bounds: Bounds) -> list[FileRange]:
        """Returns the ranges of which a row group with these bounds may hold anything."""
        first = bisect_left(self._partitions, bounds.least)
        near = self._partitions[first : bisect_right(self._partitions, bounds.most, first)]
        return [piece for tp in near for piece in self._by_partition[tp] if bounds.overlap(tp, piece.start, piece.end)]


class _SharedGroups:
    """Row groups that several partitions share, gathered until about as much as one may hold is read at once."""

    def __init__(self, opened: pq.ParquetFile, wanted: _Wanted, columns: Sequence[str]) -> None:
        self._opened = opened
        self._wanted = wanted
        self._columns = columns
        # Row groups that are not read yet, and their bytes: at most _TOGETHER, unless one alone has more.
        self._waiting: list[int] = []
        self._bytes = 0

    def add(self, group: int, size: int) -> Iterator[pa.RecordBatch]:
        """Adds the next row group, of `size` bytes; yields what was gathered before if both are too much."""
        if self._bytes + size > _TOGETHER:
            yield from self.rest()
        self._waiting.append(group)
        self._bytes += size

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yields what is gathered."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if waiting:
            rows = self._opened.read_row_groups(waiting, [*{*self._columns, *PARTITION}], use_threads=False)
            for batch in rows.combine_chunks().to_batches():
                yield from _of_shared(batch, self._wanted, self._columns)


def _of_shared(batch: pa.RecordBatch, wanted: _Wanted, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Takes the rows of `wanted` out of what several partitions share, each with the number of its offset range.

    Offsets of a partition rise in a row group and from one to the next: `file_stats` checks that when they are written.
    """
    offsets = batch["offset"].to_pylist()
    pieces = [
        (bisect_left(offsets, part.start, first, end), bisect_left(offsets, part.end, first, end), part.log)
        for tp, first, end in partition_spans(batch)
        for part in wanted.of(tp)
    ]
    spans = np.array(pieces, np.int64).reshape(-1, 3)
    sizes = spans[:, 1] - spans[:, 0]
    which = np.arange(sizes.sum()) + np.repeat(spans[:, 0] - np.cumsum(sizes) + sizes, sizes)
    if not len(which):
        return
    rows, logs = completed(batch, columns), np.repeat(spans[:, 2], sizes)
    if not np.array_equal(which, np.arange(batch.num_rows)):
        rows = rows.take(pa.array(which))
    yield rows.append_column(SCAN.field(LOG), pa.array(logs, pa.int32()))


def _numbered(batch: pa.RecordBatch, file_range: FileRange) -> pa.RecordBatch:
    """Takes the rows of `batch` that lie in `file_range`, with the number of its offset range."""
    rows = trimmed(batch, file_range.start, file_range.end)
    return rows.append_column(SCAN.field(LOG), pa.repeat(pa.scalar(file_range.log, pa.int32()), rows.num_rows))
