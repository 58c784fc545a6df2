"""Classes of keys by hash, so that one class at a time is looked at: recursive (Grace) hash partitioning."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_PIECE: Final = 65_536
"""How many keys are Python objects at a time: objects of all keys would take as much memory again."""


class HashPartition(NamedTuple):
    """Of `classes` of keys, a power of two up to 2^32, the one whose hashes end in `number`."""

    classes: int = 1
    number: int = 0

    def halves(self) -> tuple[HashPartition, HashPartition]:
        """Two classes that have all its keys, and none in common."""
        return HashPartition(2 * self.classes, self.number), HashPartition(2 * self.classes, self.number + self.classes)

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
