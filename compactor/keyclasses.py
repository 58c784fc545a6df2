"""Keys told apart by their hash, so that a pass can look at some of them: recursive (Grace) hash partitioning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class KeyClass(NamedTuple):
    """Of `classes` of keys, a power of two up to 256, the one whose hashes end in `number`."""

    classes: int = 1
    number: int = 0

    def halves(self) -> tuple[KeyClass, KeyClass]:
        """Two classes that have all its keys, and none in common."""
        return KeyClass(2 * self.classes, self.number), KeyClass(2 * self.classes, self.number + self.classes)

    def among(self, hashes: NDArray[np.uint8]) -> pa.Array:
        """Which keys with these hashes are in it."""
        return pa.array(hashes & (self.classes - 1) == self.number)


def hashes_of(keys: pa.Array | pa.ChunkedArray) -> NDArray[np.uint8]:
    """Eight bits of each key's hash, the same for equal keys in one process.

    Python's own (SipHash, 0.1 µs a key): Arrow has none. No record is looked at for it unless too many keys differ.
    """
    found = np.fromiter(map(hash, keys.to_numpy(zero_copy_only=False)), np.int64, len(keys))
    return found.astype(np.uint8)


class HashCache:
    """The hashes of batches of keys that are read again and again, by number; `most` of them are kept, a byte each."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._known: dict[int, NDArray[np.uint8]] = {}

    def of(self, number: int, keys: pa.Array) -> NDArray[np.uint8]:
        """Those of the batch of this number."""
        known = self._known.get(number)
        if known is not None:
            return known
        made = hashes_of(keys)
        if len(made) <= self._left:
            self._left -= len(made)
            self._known[number] = made
        return made
