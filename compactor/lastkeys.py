"""Which of many rows are the last of their key, found with some of the keys in memory, however many there are.

Kafka's cleaner takes what its offset map holds and begins anew behind it. Here what would be too much is read again,
for one class of keys at a time (`keyclasses`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.fold import LOG
from compactor.keyclasses import HashCache, KeyClass, hashes_of
from compactor.lastrows import last_of_each
from compactor.room import KeyRoom

COLUMNS: Final = ("key", "rejected")
"""What has to be known of a row beside the number of its slice (`fold.LOG`)."""

_ROWS: Final = 1_000_000
"""So many rows wait before they are folded into the keys that are known; fewer where fewer keys may be held."""

_ROW: Final = "row"
_HELD: Final = pa.schema([pa.field(LOG, pa.int32()), pa.field("key", pa.binary()), pa.field(_ROW, pa.int64())])

Read = Callable[[], Iterable[pa.RecordBatch]]


def last_of_keys(read: Read, room: KeyRoom) -> pa.BooleanArray | None:
    """Of every row that `read` gives whether it is in `fold.latest`: the last of its key, or rejected; by number.

    `read` gives the same rows each time: their slice (`fold.LOG`) and COLUMNS, those of a slice by offset. Beside keys
    a bit of each row is held, and hashes as far as `room` allows. None where even a class has too many keys.
    """
    hashes, classes, rejected = HashCache(room.hashes), list[KeyClass](), _Rows()
    keys = _Keys(KeyClass(), hashes)
    if not _took(_noted(read(), rejected), keys, room, classes):
        return None
    last = rejected.bits()
    _mark(last, keys.rows())
    while classes:
        keys = _Keys(classes.pop(), hashes)
        if not _took(read(), keys, room, classes):
            return None
        _mark(last, keys.rows())
    return pa.Array.from_buffers(pa.bool_(), rejected.count, [None, pa.py_buffer(last)])


class _Rows:
    """A bit for each row, in order: whether it was rejected."""

    def __init__(self) -> None:
        self.count = 0
        self._found: list[pa.BooleanArray] = [pa.array([], pa.bool_())]

    def add(self, batch: pa.RecordBatch) -> None:
        self._found.append(pc.is_valid(batch["rejected"]))
        self.count += batch.num_rows

    def bits(self) -> NDArray[np.uint8]:
        """As Arrow keeps them, the first in the lowest place; what was added is let go."""
        (_, data), self._found = pa.concat_arrays(self._found).buffers(), []
        return np.frombuffer(data or b"", np.uint8)[: -(-self.count // 8)].copy()


def _mark(bits: NDArray[np.uint8], rows: NDArray[np.int64]) -> None:
    """Sets the bits of `rows`."""
    np.bitwise_or.at(bits, rows >> 3, (1 << (rows & 7)).astype(np.uint8))


def _noted(batches: Iterable[pa.RecordBatch], rejected: _Rows) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rejected.add(batch)
        yield batch


def _took(batches: Iterable[pa.RecordBatch], keys: _Keys, room: KeyRoom, left: list[KeyClass]) -> bool:
    """A pass: whether `keys` could take all of it, with what they have left to others."""
    return all(keys.take(number, batch, room, left) for number, batch in enumerate(batches))


class _Keys:
    """The keys of one class with the last row of each."""

    def __init__(self, part: KeyClass, hashes: HashCache) -> None:
        self._part = part
        self._hashes = hashes
        self._held: list[pa.RecordBatch] = []
        self._known = self._known_bytes = 0
        self._waiting = self._waiting_bytes = 0
        self._rows = 0

    def take(self, number: int, batch: pa.RecordBatch, room: KeyRoom, left: list[KeyClass]) -> bool:
        """Takes the next batch, which has this number; what its class has too much of goes to `left`, by halves.

        False where it cannot be halved any more.
        """
        self._add(number, batch)
        self._fold_if_due(room)
        while self._known > room.keys or self._known_bytes > room.bytes:
            if self._part.classes >= room.classes:
                return False
            self._part, other = self._part.halves()
            left.append(other)
            keys = pa.Table.from_batches(self._held, _HELD)
            self._hold(keys.filter(self._part.among(hashes_of(keys["key"]))))
        return True

    def rows(self) -> NDArray[np.int64]:
        """The last row of each key."""
        self._fold()
        return pa.Table.from_batches(self._held, _HELD)[_ROW].to_numpy()

    def _add(self, number: int, batch: pa.RecordBatch) -> None:
        rows = pa.array(np.arange(self._rows, self._rows + batch.num_rows))
        self._rows += batch.num_rows
        found = pa.RecordBatch.from_arrays([batch[LOG], batch["key"], rows], schema=_HELD)
        mask = pc.is_null(batch["rejected"])
        if self._part.classes > 1:
            mask = pc.and_(mask, self._part.among(self._hashes.of(number, batch["key"])))
        self._held.append(found if pc.all(mask, min_count=0).as_py() else found.filter(mask))
        self._waiting += self._held[-1].num_rows
        self._waiting_bytes += self._held[-1]["key"].nbytes

    def _fold_if_due(self, room: KeyRoom) -> None:
        many = self._waiting >= max(min(_ROWS, room.keys), self._known)
        if many or self._waiting_bytes >= max(room.bytes, self._known_bytes):
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
