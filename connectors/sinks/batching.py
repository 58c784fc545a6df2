"""Cuts the records of a plan into pieces of one partition, and pieces into loads of one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.bin_packing import AtMost, pack
from compactor.model.partitioned import spans
from compactor.model.record import TopicPartition, sizes
from connectors.sinks.settings import TransactionLimits


class Piece(Struct, frozen=True, kw_only=True):
    """Records of one partition by offset; `last` where no record of the partition follows in this plan.

    `bytes` is by `record.measure`. A partition without records is one empty piece that is its last.
    """

    tp: TopicPartition
    batch: pa.RecordBatch
    bytes: int
    last: bool

    @property
    def records(self) -> int:
        """How many records it has."""
        return int(self.batch.num_rows)

    @property
    def next_offset(self) -> int:
        """The source offset after its last record."""
        return int(self.batch["offset"][-1].as_py()) + 1

    def largest(self, above: int) -> int:
        """The bytes of its largest record, key, value and headers; 0 where no record has more than `above` bytes."""
        found = int(sizes(self.batch).max()) if self.bytes > above else 0
        return found if found > above else 0

    def halves(self) -> tuple[Piece, Piece]:
        """The same records in two pieces; for a piece of at least two."""
        middle = self.records // 2
        parts = (self.batch.slice(0, middle), self.batch.slice(middle))
        lower, upper = (replace(self, batch=part, bytes=int(sizes(part).sum())) for part in parts)
        return replace(lower, last=False), upper


def pieces(
    batches: Iterable[pa.RecordBatch], partitions: Sequence[TopicPartition], limits: TransactionLimits
) -> Iterator[Piece]:
    """All of `batches` (sorted by topic, partition, offset) in pieces, then an empty one per silent partition."""
    seen: set[TopicPartition] = set()
    held: Piece | None = None
    for piece in _cut(batches, limits):
        seen.add(piece.tp)
        if held is not None:
            yield replace(held, last=held.tp != piece.tp)
        held = piece
    if held is not None:
        yield replace(held, last=True)
    yield from (Piece(tp=tp, batch=_EMPTY, bytes=0, last=True) for tp in partitions if tp not in seen)


def together(found: Iterable[Piece], most_records: int) -> Iterator[list[Piece]]:
    """Consecutive pieces of one topic with up to `most_records` together; a larger one is alone."""
    for _, pieces in groupby(found, key=lambda piece: piece.tp.topic):
        yield from pack(pieces, AtMost(most_records, lambda piece: piece.records))


def loads(found: Iterable[Piece], most_bytes: int) -> Iterator[list[Piece]]:
    """Consecutive pieces of up to `most_bytes` together; a larger piece is alone."""
    return pack(found, AtMost(most_bytes, lambda piece: piece.bytes))


_EMPTY = pa.RecordBatch.from_pylist([], schema=pa.schema([pa.field("offset", pa.int64())]))


def _cut(batches: Iterable[pa.RecordBatch], limits: TransactionLimits) -> Iterator[Piece]:
    for batch in batches:
        of_rows = sizes(batch)
        for tp, first, end in spans(batch):
            sums = np.cumsum(of_rows[first:end])
            for start, stop in _by_size(sums, limits):
                size = int(sums[stop - 1] - (sums[start - 1] if start else 0))
                yield Piece(tp=tp, batch=batch.slice(first + start, stop - start), bytes=size, last=False)


def _by_size(sums: Any, limits: TransactionLimits) -> Iterator[tuple[int, int]]:
    """Row ranges that keep both limits; a row that is larger than the limit is alone."""
    start = 0
    while start < len(sums):
        below = sums[start - 1] if start else 0
        fitting = int(np.searchsorted(sums, below + limits.transaction_bytes, side="right"))
        stop = min(max(fitting, start + 1), start + limits.piece_records, len(sums))
        yield start, stop
        start = stop
