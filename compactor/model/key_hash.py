"""The hash of a key: 64 bits, the same in every process and on every machine."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PIECE: Final = 8_192
"""How many keys are Python objects at a time: so few stay in the processor's cache, which takes a third off."""

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: multiples of it by few numbers differ in all bits."""


def hashes_of(
    keys: pa.Array | pa.ChunkedArray, logs: pa.Array | pa.ChunkedArray, piece: int = PIECE
) -> NDArray[np.uint64]:
    """Returns 64 bits for each key and its log's number (int32): the same for equal ones, in every process.

    By pandas (SipHash, its secret known): Arrow does not expose its hashes. Unequal ones may have the same, and can
    be chosen so: the caller compares the keys.
    """
    from pandas.util import hash_array  # it takes half a second, and most folds need no hash

    hashes = np.empty(len(keys), np.uint64)
    for at in range(0, len(keys), piece):
        hashes[at : at + piece] = hash_array(keys.slice(at, piece).to_numpy(zero_copy_only=False), categorize=False)
    return hashes ^ (logs.to_numpy().astype(np.uint64) * _ODD)
