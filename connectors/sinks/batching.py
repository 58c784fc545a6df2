"""Cuts the records of a plan into batches of one partition, and packs these for one transaction each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.bin_packing import AtMost, pack
from compactor.model.record import TopicPartition, partition_spans, sizes
from connectors.sinks.settings import TransactionLimits


class PartitionBatch(Struct, frozen=True, kw_only=True):
    """Records of one partition by offset; `last`: no record of the partition follows in this plan.

    `bytes` is by `record.measure`. A partition without records is one empty batch that is its last.
    """

    tp: TopicPartition
    rows: pa.RecordBatch
    bytes: int
    last: bool

    @property
    def records(self) -> int:
        """The number of records."""
        return int(self.rows.num_rows)

    @property
    def next_offset(self) -> int:
        """The source offset after the last record."""
        return int(self.rows["offset"][-1].as_py()) + 1

    def largest(self, above: int) -> int:
        """Returns the bytes of its largest record, key, value and headers; 0 if none has more than `above` bytes."""
        largest = int(sizes(self.rows).max()) if self.bytes > above else 0
        return largest if largest > above else 0

    def halves(self) -> tuple[PartitionBatch, PartitionBatch]:
        """Cuts a batch of at least two records into two."""
        middle = self.records // 2
        parts = (self.rows.slice(0, middle), self.rows.slice(middle))
        lower, upper = (replace(self, rows=part, bytes=int(sizes(part).sum())) for part in parts)
        return replace(lower, last=False), upper


def partition_batches(
    batches: Iterable[pa.RecordBatch], partitions: Sequence[TopicPartition], limits: TransactionLimits
) -> Iterator[PartitionBatch]:
    """Cuts `batches` (sorted by topic, partition, offset) by partition and `limits`.

    After them comes an empty batch for each of `partitions` that has no record.
    """
    seen: set[TopicPartition] = set()
    held: PartitionBatch | None = None
    for batch in _cut(batches, limits):
        seen.add(batch.tp)
        if held is not None:
            yield replace(held, last=held.tp != batch.tp)
        held = batch
    if held is not None:
        yield replace(held, last=True)
    yield from (PartitionBatch(tp=tp, rows=_EMPTY, bytes=0, last=True) for tp in partitions if tp not in seen)


def produce_groups(batches: Iterable[PartitionBatch], most_records: int) -> Iterator[list[PartitionBatch]]:
    """Packs consecutive batches into groups of at most `most_records` records; a larger one is alone."""
    return pack(batches, AtMost(most_records, lambda batch: batch.records))


def transactions(batches: Iterable[PartitionBatch], most_bytes: int) -> Iterator[list[PartitionBatch]]:
    """Packs consecutive batches into transactions of at most `most_bytes` bytes; a larger one is alone."""
    return pack(batches, AtMost(most_bytes, lambda batch: batch.bytes))


_EMPTY = pa.RecordBatch.from_pylist([], schema=pa.schema([pa.field("offset", pa.int64())]))


def _cut(batches: Iterable[pa.RecordBatch], limits: TransactionLimits) -> Iterator[PartitionBatch]:
    for batch in batches:
        of_rows = sizes(batch)
        for tp, first, end in partition_spans(batch):
            sums = np.cumsum(of_rows[first:end])
            for start, stop in _by_size(sums, limits):
                size = int(sums[stop - 1] - (sums[start - 1] if start else 0))
                yield PartitionBatch(tp=tp, rows=batch.slice(first + start, stop - start), bytes=size, last=False)


def _by_size(sums: Any, limits: TransactionLimits) -> Iterator[tuple[int, int]]:
    """Yields row ranges [start, stop) that keep both limits; a row that is larger than the limit is alone."""
    start = 0
    while start < len(sums):
        below = sums[start - 1] if start else 0
        fitting = int(np.searchsorted(sums, below + limits.transaction_bytes, side="right"))
        stop = min(max(fitting, start + 1), start + limits.batch_records, len(sums))
        yield start, stop
        start = stop
