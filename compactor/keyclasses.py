"""Keys told apart by their hash, so that some of them are looked at at a time: recursive (Grace) hash partitioning."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_PIECE: Final = 65_536
"""Of so many keys at a time there are Python objects: those of all keys that are held would take as much again."""


class KeyClass(NamedTuple):
    """Of `classes` of keys, a power of two up to 2^32, the one whose hashes end in `number`."""

    classes: int = 1
    number: int = 0

    def halves(self) -> tuple[KeyClass, KeyClass]:
        """Two classes that have all its keys, and none in common."""
        return KeyClass(2 * self.classes, self.number), KeyClass(2 * self.classes, self.number + self.classes)

    def among(self, hashes: NDArray[np.uint32]) -> pa.Array:
        """Which keys with these hashes are in it."""
        return pa.array(hashes & (self.classes - 1) == self.number)


def hashes_of(keys: pa.Array | pa.ChunkedArray) -> NDArray[np.uint32]:
    """32 bits of each key's hash, the same for equal keys in one process.

    Python's own (SipHash, 0.1 µs a key): Arrow has none. No record is looked at for it unless too many keys differ.
    """
    found = np.empty(len(keys), np.int64)
    for at in range(0, len(keys), _PIECE):
        piece = keys.slice(at, _PIECE)
        found[at : at + len(piece)] = np.fromiter(map(hash, piece.to_numpy(zero_copy_only=False)), np.int64, len(piece))
    return found.astype(np.uint32)
