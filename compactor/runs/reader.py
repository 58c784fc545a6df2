"""Reads runs without Spark: by offset, and no more of a file than the row groups that are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from compactor.model import record
from compactor.model.record import PARTITION, TopicPartition, split_by_partition
from compactor.runs import checksums
from compactor.runs.scan import LOG, SCAN, FileRange, OffsetRange
from compactor.storage.base import Storage

_MOST_PARTITION: Final = (1 << 31) - 1
"""The largest number that a partition can have."""

_ROWS: Final = 8192
"""How many records a batch has at most."""


def read(storage: Storage, offset_range: OffsetRange, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Reads the records of `offset_range` by offset; `columns` of record.RUN, all by default. Raises StorageError."""
    for file_range in offset_range.file_ranges:
        yield from read_file_range(storage, file_range, columns)


def read_file_range(
    storage: Storage, file_range: FileRange, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Reads the records of `file_range` by offset. Raises StorageError where its file cannot be opened."""
    names = list(columns or record.RUN.names)
    checksums.verify_footer(storage, file_range.file)
    with (
        storage.open_input(file_range.file.path) as source,
        pq.ParquetFile(source, page_checksum_verification=True) as file,
    ):
        bounds = map(bounds_of, map(file.metadata.row_group, range(file.num_row_groups)))
        asked = file_range.tp, file_range.start, file_range.end
        groups = [(group, one.tp is not None) for group, one in enumerate(bounds) if one.overlap(*asked)]
        for group, alone in groups:
            needed = {*names, "offset", *(() if alone else ("topic", "partition"))}
            # One by one: a batch would otherwise gather the rows of several.
            for batch in file.iter_batches(_ROWS, row_groups=[group], columns=[*needed]):
                rows = trimmed(batch if alone else _of(batch, file_range.tp), file_range.start, file_range.end)
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
        """Returns whether it may hold anything of the offsets [start, end) of `tp`."""
        return self.least <= tp <= self.most and self.first < end and self.last >= start


def bounds_of(group: pq.RowGroupMetaData) -> Bounds:
    """Returns the bounds of a row group of a run's file, whose rows are by topic and partition."""
    topic, partition, offset = (group.column(column).statistics for column in range(3))
    if topic.min == topic.max:
        least, most = ((topic.min, number) for number in (partition.min, partition.max))
    else:  # the statistics do not say which topic has the smallest partition
        least, most = (topic.min, 0), (topic.max, _MOST_PARTITION)
    return Bounds(TopicPartition(*least), TopicPartition(*most), offset.min, offset.max)


def _of(batch: pa.RecordBatch, tp: TopicPartition) -> pa.RecordBatch:
    return batch.filter(pc.and_(pc.equal(batch["topic"], tp.topic), pc.equal(batch["partition"], tp.partition)))


def trimmed(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """Returns the rows of `batch` with offsets [start, end)."""
    offsets = batch["offset"]
    inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
    return batch if pc.all(inside).as_py() else batch.filter(inside)


def read_ranges(
    opened: pq.ParquetFile, ranges: Sequence[FileRange], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Reads `ranges` of one open file, in the file's order: `columns`, with `offset` among them, and `LOG`."""
    by_partition: dict[TopicPartition, list[FileRange]] = {}
    for one in ranges:
        by_partition.setdefault(one.tp, []).append(one)
    for group in range(opened.num_row_groups):
        bounds = bounds_of(opened.metadata.row_group(group))
        near = ranges if bounds.tp is None else by_partition.get(bounds.tp, ())
        inside = [one for one in near if bounds.overlap(one.tp, one.start, one.end)]
        if not inside:
            continue
        if bounds.tp is None:
            yield from _of_shared(opened.read_row_group(group, [*{*columns, *PARTITION}]), by_partition, columns)
            continue
        for batch in opened.read_row_group(group, list(columns)).to_batches():
            yield from (_numbered(batch, one) for one in inside)


def _of_shared(
    rows: pa.Table, ranges: Mapping[TopicPartition, Sequence[FileRange]], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Takes `ranges` out of a row group that several partitions share: little of each, so all of it at once."""
    pieces = ((tp, rows) for batch in rows.to_batches() for tp, rows in split_by_partition(batch))
    found = [_numbered(rows.select(columns), one) for tp, rows in pieces for one in ranges.get(tp, ())]
    if found:
        yield pa.concat_batches(found)


def _numbered(batch: pa.RecordBatch, file_range: FileRange) -> pa.RecordBatch:
    """Takes the rows of `batch` that lie in `file_range`, with the number of its offset range."""
    rows = trimmed(batch, file_range.start, file_range.end)
    return rows.append_column(SCAN.field(LOG), pa.repeat(pa.scalar(file_range.log, pa.int32()), rows.num_rows))
