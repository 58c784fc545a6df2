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

_FEW: Final = 16
"""How many keys are hashed here, by 6 to 20 µs each, sooner than pandas' hash is loaded, which takes 3 ms."""

_COMPILED: Final = "compactor.model.pandas_siphash"
"""The module that loads pandas' hash; once it is imported, it takes one key no longer than the hash here does."""

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
    return plain_hashes(keys, secret, piece) ^ (logs.to_numpy().astype(np.uint64) * _ODD)


def plain_hashes(keys: pa.Array | pa.ChunkedArray, secret: str = KNOWN, piece: int = PIECE) -> NDArray[np.uint64]:
    """Returns the hashes of `keys` in a log with the number 0; those of another have its `log_bits` changed."""
    if len(keys) <= _FEW and _COMPILED not in sys.modules:
        return np.array([hash_of(key, secret) for key in keys.to_pylist()], np.uint64)
    from compactor.model.pandas_siphash import siphashes  # most folds need no hash

    hashes = np.empty(len(keys), np.uint64)
    for at in range(0, len(keys), piece):
        hashes[at : at + piece] = siphashes(keys.slice(at, piece).to_numpy(zero_copy_only=False), secret)
    return hashes


def log_bits(log: int) -> int:
    """Returns the bits by which the hashes of the log with this number differ from those of the log 0."""
    return (log * int(_ODD)) & _64


def hash_of(key: bytes | None, secret: str = KNOWN) -> int:
    """Returns the hash of one key as pandas' `hash_array` gives it: SipHash-2-4, then a mixing of bits."""
    word = _siphash(b"None" if key is None else key, secret.encode())
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _64
    return word ^ (word >> 31)


def _siphash(data: bytes, secret: bytes) -> int:
    first, second = (int.from_bytes(secret[at : at + 8], "little") for at in (0, 8))
    a, b = first ^ 0x736F6D6570736575, second ^ 0x646F72616E646F6D
    c, d = first ^ 0x6C7967656E657261, second ^ 0x7465646279746573
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    words = [int.from_bytes(padded[at : at + 8], "little") for at in range(0, len(padded), 8)]
    for word in words:
        a, b, c, d = _two_rounds(a, b, c, d ^ word)
        a ^= word
    a, b, c, d = _two_rounds(*_two_rounds(a, b, c ^ 0xFF, d))
    return a ^ b ^ c ^ d


def _two_rounds(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    # Written out: a call for each turn of bits takes half as long again.
    for _ in (0, 1):
        a = (a + b) & _64
        b = ((b << 13) | (b >> 51)) & _64 ^ a
        c = (c + d) & _64
        d = ((d << 16) | (d >> 48)) & _64 ^ c
        a = ((a << 32) | (a >> 32)) & _64
        a = (a + d) & _64
        d = ((d << 21) | (d >> 43)) & _64 ^ a
        c = (c + b) & _64
        b = ((b << 17) | (b >> 47)) & _64 ^ c
        c = ((c << 32) | (c >> 32)) & _64
    return a, b, c, d
