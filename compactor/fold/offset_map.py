"""Which of many rows are the last of their key, found with some of the keys in memory, however many there are.

Kafka's cleaner fills its offset map and begins another pass where it is full. Here keys that do not fit go to disk by
classes of their hashes (`keyclasses`), and the classes are looked at one after the other: no two have a key in common.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.fold.arrow_kernel import last_of_each, last_of_hashed
from compactor.fold.keyclasses import BITS, CLASSES, classes_of, hashes_of
from compactor.fold.latest_per_key import is_rejected
from compactor.fold.memory_budget import OffsetMapBudget
from compactor.fold.spilled import Spilled
from compactor.runs.scan import LOG

COLUMNS: Final = ("key", "rejected")
"""What has to be known of a row beside the number of its slice (`scan.LOG`)."""

_ROWS: Final = 1_000_000
"""So many rows wait before they are folded into the keys that are known; fewer where fewer keys may be held.

Rows that come from disk are of many keys: as many of them wait as keys may be held, and most are looked at once.
"""

_SMALL: Final = 8_192
"""Batches that have fewer rows than so many each are put together: what comes with each batch is not counted."""

_ROW: Final = "row"
_HELD: Final = pa.schema([pa.field(LOG, pa.int32()), pa.field("key", pa.binary()), pa.field(_ROW, pa.int64())])


def last_of_keys(batches: Iterable[pa.RecordBatch], room: OffsetMapBudget) -> pa.BooleanArray | None:
    """Whether each row of `batches` is in `fold.latest` (the last of its key, or rejected): one bit a row, in order.

    `batches` have the number of the slice (`scan.LOG`) and COLUMNS; rows of a slice come by offset. In memory are keys
    and one bit a row. None where even the smallest class has too many keys. Raises OSError where the disk is full.
    """
    rejected, left = _Rejected(), list[_Waiting]()
    try:
        keys = _Keys(0, room, left)
        if not all(keys.take(rejected.rest(batch)) for batch in batches):
            return None
        last = rejected.bits()
        _mark(last, keys.rows())
        while left:
            level, spilled = left.pop()
            with closing(spilled):
                keys = _Keys(level, room, left)
                if not all(keys.take(rows) for rows in spilled.read()):
                    return None
            _mark(last, keys.rows())
        return pa.Array.from_buffers(pa.bool_(), rejected.count, [None, pa.py_buffer(last)])
    finally:
        for _, spilled in left:
            spilled.close()


_Waiting = tuple[int, Spilled]
"""The rows of one class, and the level on which its keys are told apart."""


class _Rejected:
    """Numbers the rows, and keeps for each, in order, whether it was rejected."""

    def __init__(self) -> None:
        self.count = 0
        self._found: list[pa.BooleanArray] = [pa.array([], pa.bool_())]

    def rest(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows (_HELD) of the next batch that were not rejected, each with its number."""
        rows = pa.array(np.arange(self.count, self.count + batch.num_rows))
        self.count += batch.num_rows
        found = pa.RecordBatch.from_arrays([batch[LOG], batch["key"], rows], schema=_HELD)
        rejected = is_rejected(batch)
        self._found.append(rejected)
        return found.filter(pc.invert(rejected)) if rejected.true_count else found

    def bits(self) -> NDArray[np.uint8]:
        """The bits as Arrow packs them, the first row in the lowest bit. Ends it: what was kept is released."""
        (_, data), self._found = pa.concat_arrays(self._found).buffers(), []
        return np.frombuffer(data or b"", np.uint8)[: -(-self.count // 8)].copy()


def _mark(bits: NDArray[np.uint8], rows: NDArray[np.int64]) -> None:
    """Sets the bits of `rows`."""
    np.bitwise_or.at(bits, rows >> 3, (1 << (rows & 7)).astype(np.uint8))


class _Keys:
    """The keys of one class with the last row of each; where there are too many, half of them go to disk.

    They go as classes of `level`, each a file of its own, which is put among `left`: the upper half of the classes
    first, then the upper half of the rest. Rows of these classes that come later go straight there, so that no row is
    written twice on a level.
    """

    def __init__(self, level: int, room: OffsetMapBudget, left: list[_Waiting]) -> None:
        self._level = level
        self._room = room
        self._left = left
        self._own = CLASSES
        self._away: dict[int, Spilled] = {}
        self._held: list[pa.RecordBatch] = []
        self._rows = min(_ROWS, room.keys)
        self._known = self._known_bytes = 0
        self._waiting = self._waiting_bytes = 0

    def take(self, rows: pa.RecordBatch) -> bool:
        """Takes the next `rows` (_HELD) of its class; False where that cannot be told apart any more."""
        self._add(self._kept(rows) if self._own < CLASSES else rows)
        self._fold_if_due()
        while self._known > self._room.keys or self._known_bytes > self._room.bytes:
            if self._room.classes >> BITS * self._level < CLASSES:
                return False
            self._halve()
        return True

    def rows(self) -> NDArray[np.int64]:
        """The last row of each key."""
        self._fold()
        return pa.Table.from_batches(self._held, _HELD)[_ROW].to_numpy()

    def _halve(self) -> None:
        self._own //= 2
        held, self._held = self._held[::-1], []
        self._hold([self._kept(held.pop()) for _ in range(len(held))])

    def _kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of `rows` whose class is still in memory; the others go to disk."""
        classes = classes_of(hashes_of(rows["key"], rows[LOG]), self._level)
        order = np.argsort(classes, kind="stable")
        ends = np.cumsum(np.bincount(classes, minlength=CLASSES))
        own = int(ends[self._own - 1]) if self._own else 0
        others = rows.take(pa.array(order[own:]))
        for number, (start, end) in enumerate(pairwise([own, *ends[self._own :]]), self._own):
            if end > start:
                self._spilled(number).add(others.slice(start - own, end - start))
        return rows.take(pa.array(order[:own]))

    def _spilled(self, number: int) -> Spilled:
        if number not in self._away:
            self._away[number] = Spilled(_HELD)
            self._left.append((self._level + 1, self._away[number]))
        return self._away[number]

    def _add(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self._waiting += rows.num_rows
        self._waiting_bytes += rows["key"].nbytes

    def _fold_if_due(self) -> None:
        many = self._waiting >= max(self._room.keys if self._level else self._rows, self._known)
        if many or self._waiting_bytes >= max(self._room.bytes, self._known_bytes):
            self._fold()

    def _fold(self) -> None:
        """Leaves one row for each key, the last."""
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._held, _HELD)
        last = np.zeros(table.num_rows, np.bool_)
        last[self._last_of(table)] = True
        ends = np.cumsum([rows.num_rows for rows in self._held])
        self._hold([_only(rows, last[end - rows.num_rows : end]) for rows, end in zip(self._held, ends, strict=True)])

    def _last_of(self, table: pa.Table) -> NDArray[np.int64]:
        """The last row of each key in `table`. Many keys are sorted sooner than they are looked up."""
        if self._level or 2 * self._known >= self._rows:
            return last_of_hashed(table, [LOG], hashes_of(table["key"], table[LOG]))
        return last_of_each(table, [LOG])

    def _hold(self, rows: list[pa.RecordBatch]) -> None:
        keys = pa.Table.from_batches(rows, _HELD)
        if keys.num_rows < len(rows) * _SMALL:
            keys = keys.combine_chunks()
        self._held = keys.to_batches()
        self._known, self._known_bytes = keys.num_rows, keys["key"].nbytes
        self._waiting = self._waiting_bytes = 0


def _only(rows: pa.RecordBatch, which: NDArray[np.bool_]) -> pa.RecordBatch:
    """Those of `rows`; the very same where they are all, so that memory is not needed twice."""
    return rows if which.all() else rows.filter(pa.array(which))
