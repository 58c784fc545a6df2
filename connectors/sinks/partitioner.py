"""Gives a key the partition that Kafka's default partitioner gives it, by murmur2 of its bytes.

Java's producer does the same with a record that has a key (`BuiltInPartitioner.partitionForKey`):
`toPositive(murmur2(key)) % partitions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_32: Final = (1 << 32) - 1

_SHORT: Final = 256
"""Bytes up to which keys are hashed together, word by word: 64 steps at most, whatever their number. A longer key is
hashed by itself at some 30 MB/s, faster than one is sent to a broker."""

Words = NDArray[np.uint32]


def partitions_of(keys: pa.Array, partitions: int) -> NDArray[np.int64]:
    """Returns for each of `keys` (binary, none null) its partition out of `partitions`, as Kafka's producer does."""
    return (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


def moved_keys(keys: Sequence[bytes], own: int, partitions: int | UnsetType) -> set[bytes]:
    """Returns those of `keys`, which are in partition `own`, that go to another one; none if `partitions` is unset."""
    if partitions is UNSET or not keys:
        return set()
    places = partitions_of(pa.array(keys, pa.binary()), partitions).tolist()
    return {key for key, place in zip(keys, places, strict=True) if place != own}


def murmur2(keys: pa.Array) -> Words:
    """Returns the murmur2 hash of each of `keys` (binary, none null), 32 bits (`Utils.murmur2`)."""
    lengths = pc.binary_length(keys).to_numpy(zero_copy_only=False).astype(np.int64)
    hashes = np.empty(len(keys), np.uint32)
    short = np.flatnonzero(lengths <= _SHORT)
    hashes[short] = _of_short(keys.take(pa.array(short)), lengths[short])
    for row in np.flatnonzero(lengths > _SHORT).tolist():
        hashes[row] = _of_long(keys[row].as_py())
    return hashes


def _of_short(keys: pa.Array, lengths: NDArray[np.int64]) -> Words:
    """Hashes keys of up to _SHORT bytes: the same word of all of them at once."""
    by_length = np.argsort(-lengths, kind="stable")  # so that those that still have a word come first
    starts, data = _bytes_of(keys)
    starts, own = starts[by_length], lengths[by_length]
    hashes = np.uint32(_SEED) ^ own.astype(np.uint32)
    words = own // 4
    for word in range(int(words[0]) if len(words) else 0):
        left = int(np.searchsorted(-words, -word, side="left"))
        hashes[:left] = (hashes[:left] * np.uint32(_M)) ^ _mixed(_words_at(data, starts[:left] + 4 * word))
    hashes = _with_rest(hashes, data, starts + 4 * words, own % 4)
    made = np.empty_like(hashes)
    made[by_length] = _ended(hashes)
    return made


def _bytes_of(keys: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Returns the place of each key's first byte among the bytes of all, and these with room for another word."""
    large = keys.cast(pa.large_binary())
    _, offsets, data = large.buffers()
    starts = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large)]
    held = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return starts, np.concatenate([held, np.zeros(4, np.uint8)])


def _words_at(data: NDArray[np.uint8], starts: NDArray[np.int64]) -> Words:
    """Returns the little-endian word at each of `starts`."""
    word = np.zeros(len(starts), np.uint32)
    for byte in range(4):
        word |= data[starts + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _mixed(words: Words) -> Words:
    words = words * np.uint32(_M)
    words ^= words >> np.uint32(_R)
    return words * np.uint32(_M)


def _with_rest(hashes: Words, data: NDArray[np.uint8], starts: NDArray[np.int64], rest: NDArray[np.int64]) -> Words:
    """Adds the last one to three bytes of each key that has some."""
    for byte in (2, 1, 0):
        own = rest > byte
        hashes[own] ^= data[starts[own] + byte].astype(np.uint32) << np.uint32(8 * byte)
    some = rest > 0
    hashes[some] *= np.uint32(_M)
    return hashes


def _ended(hashes: Words) -> Words:
    hashes = hashes ^ (hashes >> np.uint32(13))
    hashes = hashes * np.uint32(_M)
    return hashes ^ (hashes >> np.uint32(15))


def _of_long(key: bytes) -> int:
    """Hashes one key: its words are mixed together, and only their order takes a step each."""
    whole = len(key) // 4 * 4
    hash_ = _SEED ^ len(key)
    for word in _mixed(np.frombuffer(key, "<u4", count=whole // 4).astype(np.uint32)).tolist():
        hash_ = ((hash_ * _M) & _32) ^ word
    if rest := key[whole:]:
        hash_ = ((hash_ ^ int.from_bytes(rest, "little")) * _M) & _32
    return int(_ended(np.array([hash_], np.uint32))[0])
