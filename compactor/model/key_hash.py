"""The hash of a key: 64 bits, the same in every process and on every machine for one secret. Index files hold it."""

from __future__ import annotations

import sys
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PIECE: Final = 8_192
"""How many keys are Python objects at a time: so few stay in the processor's cache, which takes a third off."""

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: multiples of it by few numbers differ in all bits."""

_FEW: Final = 1_000
"""How many keys are hashed here, by 20 µs each, sooner than pandas is imported, which takes half a second."""

KNOWN: Final = "0123456789123456"
"""The secret of pandas' hash unless there is another one: 16 characters. Who knows it can make keys of one hash."""

_64: Final = (1 << 64) - 1


def hashes_of(
    keys: pa.Array | pa.ChunkedArray, logs: pa.Array | pa.ChunkedArray, piece: int = PIECE, secret: str = KNOWN
) -> NDArray[np.uint64]:
    """Returns 64 bits for each key and its log's number (int32): the same for equal ones, in every process.

    By pandas (SipHash with `secret`, 16 ASCII characters): Arrow does not expose its hashes. Unequal ones may have the
    same, and can be chosen so by who knows the secret: the caller compares the keys.
    """
    if len(keys) <= _FEW and "pandas" not in sys.modules:
        few = [hash_of(key, secret) for key in keys.to_pylist()]
        return _mixed(np.array(few, np.uint64), logs)
    from pandas.util import hash_array  # it takes half a second, and most folds need no hash

    hashes = np.empty(len(keys), np.uint64)
    for at in range(0, len(keys), piece):
        some = keys.slice(at, piece).to_numpy(zero_copy_only=False)
        hashes[at : at + piece] = hash_array(some, hash_key=secret, categorize=False)
    return _mixed(hashes, logs)


def _mixed(hashes: NDArray[np.uint64], logs: pa.Array | pa.ChunkedArray) -> NDArray[np.uint64]:
    return hashes ^ (logs.to_numpy().astype(np.uint64) * _ODD)


def hash_of(key: bytes | None, secret: str = KNOWN) -> int:
    """Returns the hash of one key as pandas' `hash_array` gives it: SipHash-2-4, then a mixing of bits."""
    word = _siphash(b"None" if key is None else key, secret.encode())
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _64
    return word ^ (word >> 31)


def _siphash(data: bytes, secret: bytes) -> int:
    first, second = (int.from_bytes(secret[at : at + 8], "little") for at in (0, 8))
    state = (
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    )
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        a, b, c, d = _round(_round((state[0], state[1], state[2], state[3] ^ word)))
        state = a ^ word, b, c, d
    state = state[0], state[1], state[2] ^ 0xFF, state[3]
    for _ in range(4):
        state = _round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _round(state: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    a, b, c, d = state
    a = (a + b) & _64
    b = _left(b, 13) ^ a
    a = _left(a, 32)
    c = (c + d) & _64
    d = _left(d, 16) ^ c
    a = (a + d) & _64
    d = _left(d, 21) ^ a
    c = (c + b) & _64
    b = _left(b, 17) ^ c
    return a, b, _left(c, 32), d


def _left(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _64
