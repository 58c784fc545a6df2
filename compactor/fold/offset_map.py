"""Which of many rows are the last of their key, found with some of the keys in memory, however many there are.

Kafka's cleaner fills its offset map and begins another pass where it is full. Here keys that do not fit go to disk by
classes (`keyclasses`), and the classes are looked at one after the other: no two have a key in common.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.fold.arrow_kernel import last_of_each
from compactor.fold.keyclasses import HashPartition, hashes_of
from compactor.fold.memory_budget import OffsetMapBudget
from compactor.fold.spilled import Spilled
from compactor.runs.scan import LOG

COLUMNS: Final = ("key", "rejected")
"""What has to be known of a row beside the number of its slice (`scan.LOG`)."""

_ROWS: Final = 1_000_000
"""So many rows wait before they are folded into the keys that are known; fewer where fewer keys may be held."""

_ROW: Final = "row"
_HELD: Final = pa.schema([pa.field(LOG, pa.int32()), pa.field("key", pa.binary()), pa.field(_ROW, pa.int64())])


def last_of_keys(batches: Iterable[pa.RecordBatch], room: OffsetMapBudget) -> pa.BooleanArray | None:
    """Whether each row of `batches` is in `fold.latest` (the last of its key, or rejected): one bit a row, in order.

    `batches` have the number of the slice (`scan.LOG`) and COLUMNS; rows of a slice come by offset. In memory are keys
    and one bit a row. None where even the smallest class has too many keys. Raises OSError where the disk is full.
    """
    rejected, left = _Rejected(), list[_Waiting]()
    try:
        keys = _Keys(HashPartition(), room, left)
        if not all(keys.take(rejected.rest(batch)) for batch in batches):
            return None
        last = rejected.bits()
        _mark(last, keys.rows())
        while left:
            part, spilled = left.pop()
            with closing(spilled):
                keys = _Keys(part, room, left)
                if not all(keys.take(rows) for rows in spilled.read()):
                    return None
            _mark(last, keys.rows())
        return pa.Array.from_buffers(pa.bool_(), rejected.count, [None, pa.py_buffer(last)])
    finally:
        for _, spilled in left:
            spilled.close()


_Waiting = tuple[HashPartition, Spilled]


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
        rejected = pc.is_valid(batch["rejected"])
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
    """The keys of one class with the last row of each; where there are too many, half of the class goes to `left`."""

    def __init__(self, part: HashPartition, room: OffsetMapBudget, left: list[_Waiting]) -> None:
        self._part = part
        self._room = room
        self._left = left
        self._away: list[_Waiting] = []
        self._held: list[pa.RecordBatch] = []
        self._known = self._known_bytes = 0
        self._waiting = self._waiting_bytes = 0

    def take(self, rows: pa.RecordBatch) -> bool:
        """Takes the next `rows` (_HELD) of its class; False where that cannot be halved any more."""
        self._add(self._own(rows) if self._away else rows)
        self._fold_if_due()
        while self._known > self._room.keys or self._known_bytes > self._room.bytes:
            if self._part.classes >= self._room.classes:
                return False
            self._halve()
        return True

    def rows(self) -> NDArray[np.int64]:
        """The last row of each key."""
        self._fold()
        return pa.Table.from_batches(self._held, _HELD)[_ROW].to_numpy()

    def _halve(self) -> None:
        self._part, other = self._part.halves()
        self._away.append((other, Spilled(_HELD)))
        self._left.append(self._away[-1])
        held = pa.Table.from_batches(self._held, _HELD).combine_chunks().to_batches()
        self._hold(pa.Table.from_batches(map(self._own, held), _HELD))

    def _own(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of `rows` that are still of its class; the others go to disk."""
        hashes = hashes_of(rows["key"])
        for part, spilled in self._away:
            spilled.add(rows.filter(part.among(hashes)))
        return rows.filter(self._part.among(hashes))

    def _add(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self._waiting += rows.num_rows
        self._waiting_bytes += rows["key"].nbytes

    def _fold_if_due(self) -> None:
        many = self._waiting >= max(min(_ROWS, self._room.keys), self._known)
        if many or self._waiting_bytes >= max(self._room.bytes, self._known_bytes):
            self._fold()

    def _fold(self) -> None:
        """Leaves one row for each key, the last."""
        if self._waiting:
            table = pa.Table.from_batches(self._held, _HELD)
            self._hold(table.take(pa.array(last_of_each(table, [LOG]))))

    def _hold(self, keys: pa.Table) -> None:
        keys = keys.combine_chunks()
        self._held = keys.to_batches()
        self._known, self._known_bytes = keys.num_rows, keys["key"].nbytes
        self._waiting = self._waiting_bytes = 0
