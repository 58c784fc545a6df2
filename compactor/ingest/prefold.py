"""Folds records while they are read, if what a later one of the same key supersedes is not needed.

As many as are held together are folded; if next to none is superseded, those that come next are passed on.

It is not needed if a log is compacted without a lag: whatever is taken in is due at once, and a fold over the whole
micro-batch leaves the same. Otherwise this must never be done: no fold may end inside what was folded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compactor.errors import DEFECT, IngestError
from compactor.fold.arrow_kernel import last_rows
from compactor.model import record
from compactor.model.record import PARTITION, TopicPartition
from compactor.runs.writer import ROW_GROUP_BYTES, cut

HELD_BYTES: Final = 128 << 20
"""Arrow bytes that a task holds at most before it folds them."""

_IN_VAIN: Final = 10
"""A fold is in vain if it leaves out fewer than one of so many records: to look for the last of each key and to put
records together takes 0.2 µs a record, and to publish one that would have been left out 2 µs."""

_MOST_PASSED: Final = 8
"""How many times the bytes of a fold are passed on at most before one is tried again."""


class Prefold:
    """Records (record.RUN) of any number of partitions on their way to a file.

    `superseded` counts, by partition, the records that were left out of the batches yielded so far.
    """

    def __init__(self, held_bytes: int = HELD_BYTES, group_bytes: int = ROW_GROUP_BYTES) -> None:
        self.superseded: Counter[TopicPartition] = Counter()
        self._max_bytes = held_bytes
        self._group_bytes = group_bytes
        # Batches that came since the last yield, folded once `_bytes` (Arrow bytes) exceed `_max_bytes`.
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        # By how many `_max_bytes` records were last passed on without a fold: twice as many after each fold in vain.
        self._times = 0
        # Arrow bytes that are still to be passed on. Nothing is held then: what comes later would be passed on before.
        self._to_pass = 0

    def latest(self, batches: Iterable[pa.RecordBatch | None]) -> Iterator[pa.RecordBatch | None]:
        """Yields the records of `batches` that no later one supersedes, as far as they are held at one time.

        After a fold in vain others are not looked for in what comes next. Nothing is folded across a None, which is
        passed on.
        """
        for batch in batches:
            if batch is None:
                yield from self._flush()
                yield None
                continue
            if self._to_pass > 0:
                self._to_pass -= batch.nbytes
                yield from cut(batch, self._group_bytes)
                continue
            self._held.append(batch)
            self._bytes += batch.nbytes
            if self._bytes > self._max_bytes:
                yield from self._shrink()
        yield from self._flush()

    def _shrink(self) -> Iterator[pa.RecordBatch]:
        """Folds what is held; yields it if the fold does not halve it, or was in vain: then the next are passed on."""
        before, records = self._bytes, self._records()
        self._fold()
        in_vain = (records - self._records()) * _IN_VAIN < records
        self._times = min(_MOST_PASSED, max(1, 2 * self._times)) if in_vain else 0
        self._to_pass = self._times * self._max_bytes
        if in_vain or self._bytes > before // 2:
            yield from self._emit()

    def _records(self) -> int:
        return sum(batch.num_rows for batch in self._held)

    def _flush(self) -> Iterator[pa.RecordBatch]:
        """Folds what is held and yields it; then nothing is held."""
        self._fold()
        yield from self._emit()

    def _emit(self) -> Iterator[pa.RecordBatch]:
        """Yields what is held, cut to the size of row groups; then nothing is held."""
        for batch in self._held:
            yield from cut(batch, self._group_bytes)
        self._held, self._bytes = [], 0

    def _fold(self) -> None:
        if self._records() < 2:
            return
        table = pa.Table.from_batches(self._held, record.RUN).combine_chunks()
        _check_rising(table)
        rows = last_rows(record.as_compared(table), PARTITION)
        if len(rows) < table.num_rows:
            left_out = np.ones(table.num_rows, np.bool_)
            left_out[rows] = False
            self._count(table.select(PARTITION).filter(pa.array(left_out)))
            table = table.take(pa.array(rows))
        self._held, self._bytes = table.to_batches(), table.nbytes

    def _count(self, left_out: pa.Table) -> None:
        counts = left_out.group_by(PARTITION).aggregate([([], "count_all")])
        for topic, partition, count in zip(
            *(counts[name].to_pylist() for name in (*PARTITION, "count_all")), strict=True
        ):
            self.superseded[TopicPartition(topic, partition)] += count


def _check_rising(table: pa.Table) -> None:
    """Raises IngestError if offsets of one partition do not rise: the order says which of two records is later."""
    rows = table.num_rows
    falls = pc.less_equal(table["offset"].slice(1), table["offset"].slice(0, rows - 1))
    for name in PARTITION:
        falls = pc.and_(falls, pc.equal(table[name].slice(1), table[name].slice(0, rows - 1)))
    row = pc.index(falls, True).as_py()
    if row >= 0:
        tp, offset = TopicPartition(table["topic"][row].as_py(), table["partition"][row].as_py()), table["offset"][row]
        raise IngestError(f"{tp}: offsets do not rise behind {offset} in records that were read.", DEFECT)
