"""Finds which of many rows are the last of their key with some of the keys in memory, however many there are.

Kafka's cleaner fills its offset map and begins another pass when it is full. Here keys that do not fit are spilled to
disk by hash partition, a level of recursive (Grace) hash partitioning at a time; the hash partitions are looked at one
after the other, as no two have a key in common. A spill file has no name and lies in Spark's folder for spilled data:
nothing of it stays, however the process ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.fold.arrow_kernel import last_of_each
from compactor.fold.latest_per_key import is_rejected
from compactor.fold.memory_budget import OffsetMapBudget
from compactor.model.key_hash import hashes_of
from compactor.runs.scan import LOG
from compactor.storage.spill_file import SpillFile

COLUMNS: Final = ("key", "rejected")
"""The columns that are read of a row, in addition to the number of its range (`scan.LOG`)."""

_SMALL: Final = 8_192
"""Batches of fewer rows on average are combined: what a batch takes in memory apart from its rows is not counted."""

BITS: Final = 4
"""By how many bits of their hashes a level splits keys; each level takes bits of its own."""

HASH_PARTITIONS: Final = 1 << BITS
"""Into how many hash partitions a level splits keys."""

_MARKED: Final = 16_384
"""How many bits are set at a time: what is made of their rows stays in the processor's cache."""

_ROW: Final = "row"
# Rows in the map: a key, its log, and the number of the row among all that were read.
_HELD: Final = pa.schema([pa.field(LOG, pa.int32()), pa.field("key", pa.binary()), pa.field(_ROW, pa.int64())])


def last_of_keys(batches: Iterable[pa.RecordBatch], budget: OffsetMapBudget) -> pa.BooleanArray | None:
    """Returns whether each row of `batches` is the last of its key, or rejected: one bit a row, in order.

    `batches` have the number of the range (`scan.LOG`) and COLUMNS; rows of a range come by offset. In memory are keys
    and one bit a row. None if even the smallest hash partition has too many keys. Raises OSError if the disk is
    full.
    """
    rejected, left = _Rejected(), list[_Waiting]()
    try:
        keys = OffsetMap(0, budget, left)
        if not all(keys.put(rejected.rest(batch)) for batch in batches):
            return None
        last = rejected.bits()
        _mark(last, keys.rows())
        while left:
            level, spilled = left.pop()
            with closing(spilled):
                keys = OffsetMap(level, budget, left)
                if not all(keys.put(rows) for rows in spilled.read()):
                    return None
            _mark(last, keys.rows())
        return pa.Array.from_buffers(pa.bool_(), rejected.count, [None, pa.py_buffer(last)])
    finally:
        for _, spilled in left:
            spilled.close()


class _Waiting(NamedTuple):
    """The level on which the keys of a hash partition are split further, and its rows."""

    level: int
    rows: SpillFile


class _Rejected:
    """Numbers the rows, and keeps for each, in order, whether it was rejected."""

    def __init__(self) -> None:
        # Rows so far; the number of the next row.
        self.count = 0
        # One mask a batch, until `bits` takes them.
        self._masks: list[pa.BooleanArray] = [pa.array([], pa.bool_())]

    def rest(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows (_HELD) of the next batch that were not rejected, each with its number."""
        rows = pa.array(np.arange(self.count, self.count + batch.num_rows))
        self.count += batch.num_rows
        numbered = pa.RecordBatch.from_arrays([batch[LOG], batch["key"], rows], schema=_HELD)
        rejected = is_rejected(batch)
        self._masks.append(rejected)
        return numbered.filter(pc.invert(rejected)) if rejected.true_count else numbered

    def bits(self) -> NDArray[np.uint8]:
        """Returns the bits as Arrow packs them, the first row in the lowest bit; the masks are released."""
        (_, data), self._masks = pa.concat_arrays(self._masks).buffers(), []
        return np.frombuffer(data or b"", np.uint8)[: -(-self.count // 8)].copy()


def _mark(bits: NDArray[np.uint8], rows: NDArray[np.int64]) -> None:
    """Sets the bits of `rows`."""
    for at in range(0, len(rows), _MARKED):
        some = rows[at : at + _MARKED]
        np.bitwise_or.at(bits, some >> 3, np.left_shift(np.uint8(1), (some & 7).astype(np.uint8)))


class OffsetMap:
    """The keys of one hash partition with the last row of each; if there are too many, half of them are spilled.

    They are split into hash partitions of `level`. The upper half of these is spilled first, then the upper half of the
    rest; each goes to a file of its own, which is appended to `left`. Later rows of a spilled hash partition go
    straight to its file, so that no row is written twice on a level.
    """

    def __init__(self, level: int, budget: OffsetMapBudget, left: list[_Waiting]) -> None:
        self._level = level
        self._budget = budget
        self._left = left
        # Hash partitions below it are in memory, those from it on are spilled; halved by `_halve`.
        self._own = HASH_PARTITIONS
        # By number the file of each hash partition that is spilled; `left` has the files too, for the caller to read.
        self._spilled: dict[int, SpillFile] = {}
        # Batches of rows: known ones first, then those that wait.
        self._held: list[pa.RecordBatch] = []
        # How many rows may wait on the first level.
        self._rows = min(budget.waiting, budget.keys)
        # Keys that are held with one row each, and their bytes, as of the last fold.
        self._known = self._known_bytes = 0
        # Rows that were added since, and the bytes of their keys; folded once they are as many as the keys.
        self._waiting = self._waiting_bytes = 0

    def put(self, rows: pa.RecordBatch) -> bool:
        """Puts the next `rows` (_HELD) of its hash partition; returns False if that cannot be split any more."""
        own = self._kept(rows) if self._own < HASH_PARTITIONS else rows
        self._held.append(own)
        self._waiting += own.num_rows
        self._waiting_bytes += own["key"].nbytes
        many = self._waiting >= max(self._budget.keys if self._level else self._rows, self._known)
        if many or self._waiting_bytes >= max(self._budget.bytes, self._known_bytes):
            self._fold()
        while self._known > self._budget.keys or self._known_bytes > self._budget.bytes:
            if self._budget.hash_partitions >> BITS * self._level < HASH_PARTITIONS:
                return False
            self._halve()
        return True

    def rows(self) -> NDArray[np.int64]:
        """Returns the last row of each key."""
        self._fold()
        return pa.Table.from_batches(self._held, _HELD)[_ROW].to_numpy()

    def _halve(self) -> None:
        self._own //= 2
        held, self._held = self._held[::-1], []
        self._hold([self._kept(held.pop()) for _ in range(len(held))])

    def _kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns those of `rows` of which the hash partition is still in memory; the others are spilled."""
        numbers = hash_partitions_of(hashes_of(rows["key"], rows[LOG]), self._level)
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=HASH_PARTITIONS))
        own = int(ends[self._own - 1]) if self._own else 0
        others = rows.take(pa.array(order[own:]))
        for number, (start, end) in enumerate(pairwise([own, *ends[self._own :]]), self._own):
            if end > start:
                self._file_of(number).add(others.slice(start - own, end - start))
        return rows.take(pa.array(order[:own]))

    def _file_of(self, number: int) -> SpillFile:
        if number not in self._spilled:
            self._spilled[number] = SpillFile(_HELD)
            self._left.append(_Waiting(self._level + 1, self._spilled[number]))
        return self._spilled[number]

    def _fold(self) -> None:
        """Folds the held rows to the last one of each key."""
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._held, _HELD)
        last = np.zeros(table.num_rows, np.bool_)
        last[last_of_each(table, [LOG])] = True
        ends = np.cumsum([held.num_rows for held in self._held])
        self._hold([_only(held, last[end - held.num_rows : end]) for held, end in zip(self._held, ends, strict=True)])

    def _hold(self, rows: list[pa.RecordBatch]) -> None:
        keys = pa.Table.from_batches(rows, _HELD)
        if keys.num_rows < len(rows) * _SMALL:
            keys = keys.combine_chunks()
        self._held = keys.to_batches()
        self._known, self._known_bytes = keys.num_rows, keys["key"].nbytes
        self._waiting = self._waiting_bytes = 0


def _only(rows: pa.RecordBatch, which: NDArray[np.bool_]) -> pa.RecordBatch:
    """Returns the `rows` that are set in `which`; `rows` itself if that is all, so that memory is not needed twice."""
    return rows if which.all() else rows.filter(pa.array(which))


def hash_partitions_of(hashes: NDArray[np.uint64], level: int) -> NDArray[np.uint8]:
    """Returns the hash partition, below HASH_PARTITIONS, of each key with these hashes on `level`, from 0 on."""
    return ((hashes >> np.uint64(BITS * level)) & np.uint64(HASH_PARTITIONS - 1)).astype(np.uint8)
