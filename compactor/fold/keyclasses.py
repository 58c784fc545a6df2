"""Hashes of keys, and the classes that their bits make: recursive (Grace) hash partitioning, a level at a time."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_PIECE: Final = 8_192
"""How many keys are Python objects at a time: so few stay in the processor's cache, which takes a third off."""

BITS: Final = 4
"""A level tells keys apart by so many bits of their hashes, each level by bits of its own."""

CLASSES: Final = 1 << BITS
"""Into how many classes a level tells keys apart."""

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: multiples of it by few numbers differ in all bits."""


def hashes_of(keys: pa.Array | pa.ChunkedArray, logs: pa.Array | pa.ChunkedArray) -> NDArray[np.uint64]:
    """64 bits for each key and its log's number (int32): the same for equal ones, in every process.

    By pandas (SipHash, its secret known): Arrow hashes nothing for others. Unequal ones may have the same, and can be
    chosen so: what is equal is for the caller to find out.
    """
    from pandas.util import hash_array  # it takes half a second, and most folds need no hash

    found = np.empty(len(keys), np.uint64)
    for at in range(0, len(keys), _PIECE):
        found[at : at + _PIECE] = hash_array(keys.slice(at, _PIECE).to_numpy(zero_copy_only=False), categorize=False)
    return found ^ (logs.to_numpy().astype(np.uint64) * _ODD)


def classes_of(hashes: NDArray[np.uint64], level: int) -> NDArray[np.uint8]:
    """The class, below CLASSES, of each key with these hashes on `level`, which counts from 0."""
    return ((hashes >> np.uint64(BITS * level)) & np.uint64(CLASSES - 1)).astype(np.uint8)
