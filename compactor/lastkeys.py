"""Which of many rows are the last of their key, found with some of the keys in memory, however many there are.

Kafka's cleaner does what its offset map holds and begins anew behind it. Here what would be too much is read again:
keys are told apart by their hash, and each pass looks at those of one class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from compactor.fold import LOG
from compactor.lastrows import last_of_each

COLUMNS: Final = ("key", "rejected")
"""What has to be known of a row beside the number of its slice (`fold.LOG`)."""

_ROWS: Final = 1_000_000
"""So many rows wait at least before they are folded into the keys that are known."""

_ROW: Final = "row"
_HELD: Final = pa.schema([pa.field(LOG, pa.int32()), pa.field("key", pa.binary()), pa.field(_ROW, pa.int64())])


class KeyRoom(Struct, frozen=True):
    """How many keys are held at once, and how many bytes of them; rows that wait to be folded may be as much again.

    `classes`: a power of two, 256 at most: into how many of them keys may be told apart.
    """

    keys: int
    bytes: int
    classes: int = 64

    def shared(self, tasks: int) -> KeyRoom:
        """What each of `tasks` beside one another has of it."""
        return replace(self, keys=self.keys // tasks, bytes=self.bytes // tasks)


MACHINE: Final = KeyRoom(keys=4_000_000, bytes=256 << 20)
"""What all tasks of a machine hold together: of each key some hundred bytes beside its own."""


def last_of_keys(read: Callable[[], Iterable[pa.RecordBatch]], room: KeyRoom) -> NDArray[np.bool_] | None:
    """Of every row that `read` gives whether it is in `fold.latest`: the last of its key, or rejected; by number.

    `read` gives the same rows each time: their slice (`fold.LOG`) and COLUMNS, those of a slice by offset. Beside keys
    up to three bytes a row are held. None where even a class has more keys than may be held.
    """
    last: NDArray[np.bool_] | None = None
    classes, hashes = [_Class(1, 0)], _Hashes()
    while classes:
        keys, alone = _Keys(classes.pop(), hashes), [np.zeros(0, np.bool_)]
        for number, batch in enumerate(read()):
            keys.add(number, batch)
            if last is None:
                alone.append(pc.is_valid(batch["rejected"]).to_numpy(zero_copy_only=False))
            while keys.is_over(room):
                if keys.of.classes == room.classes:
                    return None
                classes.append(keys.halve())
        if last is None:
            last = np.concatenate(alone)
            alone.clear()
        last[keys.rows()] = True
    return last


class _Class(NamedTuple):
    """Of `classes` of keys, a power of two, the one whose hashes end in `number`."""

    classes: int
    number: int

    def halves(self) -> tuple[_Class, _Class]:
        return _Class(2 * self.classes, self.number), _Class(2 * self.classes, self.number + self.classes)

    def among(self, hashes: NDArray[np.uint8]) -> pa.Array:
        return pa.array(hashes & (self.classes - 1) == self.number)


class _Hashes:
    """The hashes of keys by number of their batch, each made once."""

    def __init__(self) -> None:
        self._known: dict[int, NDArray[np.uint8]] = {}

    def of(self, number: int, keys: pa.Array) -> NDArray[np.uint8]:
        if number not in self._known:
            self._known[number] = _hashes(keys)
        return self._known[number]


def _hashes(keys: pa.Array | pa.ChunkedArray) -> NDArray[np.uint8]:
    found = np.fromiter(map(hash, keys.to_numpy(zero_copy_only=False)), np.int64, len(keys))
    return found.astype(np.uint8)


class _Keys:
    """The keys of one class with the last row of each."""

    def __init__(self, of: _Class, hashes: _Hashes) -> None:
        self.of = of
        self._hashes = hashes
        self._held: list[pa.RecordBatch] = []
        self._known = self._known_bytes = 0
        self._waiting = self._waiting_bytes = 0
        self._rows = 0

    def add(self, number: int, batch: pa.RecordBatch) -> None:
        """Takes the next batch, which has this number."""
        rows = pa.array(np.arange(self._rows, self._rows + batch.num_rows))
        self._rows += batch.num_rows
        found = pa.RecordBatch.from_arrays([batch[LOG], batch["key"], rows], schema=_HELD)
        ours = pc.is_null(batch["rejected"])
        if self.of.classes > 1:
            ours = pc.and_(ours, self.of.among(self._hashes.of(number, batch["key"])))
        self._held.append(found if pc.all(ours, min_count=0).as_py() else found.filter(ours))
        self._waiting += self._held[-1].num_rows
        self._waiting_bytes += self._held[-1]["key"].nbytes

    def is_over(self, room: KeyRoom) -> bool:
        """Whether there are more keys than `room` is for; they are counted when enough is waiting."""
        many = self._waiting >= max(min(_ROWS, room.keys), self._known)
        if many or self._waiting_bytes >= max(room.bytes, self._known_bytes):
            self._fold()
        return self._known > room.keys or self._known_bytes > room.bytes

    def halve(self) -> _Class:
        """Goes on with half of the class; the other half is yet to be done."""
        self.of, other = self.of.halves()
        keys = self._fold()
        self._hold(keys.filter(self.of.among(_hashes(keys["key"]))))
        return other

    def rows(self) -> NDArray[np.int64]:
        """The last row of each key."""
        return self._fold()[_ROW].to_numpy()

    def _fold(self) -> pa.Table:
        """One row for each key, the last; that is what is held from now on."""
        table = pa.Table.from_batches(self._held, _HELD)
        if self._waiting:
            table = table.take(pa.array(last_of_each(table, [LOG]))).combine_chunks()
            self._hold(table)
        return table

    def _hold(self, keys: pa.Table) -> None:
        self._held = keys.to_batches()
        self._known, self._known_bytes = keys.num_rows, keys["key"].nbytes
        self._waiting = self._waiting_bytes = 0
