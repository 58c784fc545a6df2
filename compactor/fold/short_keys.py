"""Finds the last row of each of many short keys: hashes of their 8-byte words are sorted, equal ones compared.

Keys are read in Arrow's buffers, 8 bytes of many keys at a time: no key becomes an object, and none is
copied. Sorting numbers that hold both a hash and a row takes a fifth of the time of sorting rows by hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

LONGEST: Final = 40
"""Bytes of the longest key that is compared by words: each word of the longest costs as much for every key."""

_MOST_BYTES: Final = 1 << 30
"""How many bytes all keys have at most: places in them are numbers of 32 bits."""

_PIECE: Final = 16_384
"""How many keys are looked at together: what is made of them stays in the processor's cache."""

_WORD: Final = 8
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = np.uint64(0xBF58476D1CE4E5B9)
_HALF: Final = np.uint64(32)
_64: Final = np.uint64(64)


class LastRows(NamedTuple):
    """`last`: rows that are the last of their keys. Of the rows `unlike`, which rise, that is not known.

    No row of `unlike` has its key in common with another row than those of `unlike`.
    """

    last: NDArray[np.int64]
    unlike: NDArray[np.int64]


def hashes_of_words(words: Iterator[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """Returns a hash of 64 bits for each key, given the first word of each, then the second, and so on."""
    hashes = next(words)
    for word in words:
        hashes *= _ODD
        hashes ^= hashes >> _HALF
        hashes ^= word
    for factor in (_MIX, _ODD):
        hashes *= factor
        hashes ^= hashes >> _HALF
    hashes *= _MIX
    return hashes


def are_short(keys: pa.BinaryArray, most_bytes: int = _MOST_BYTES) -> bool:
    """Returns whether no key is longer than LONGEST, or null, and all have no more than `most_bytes`."""
    if not len(keys) or keys.null_count:
        return False
    bounds = _bounds(keys)
    return int(np.diff(bounds).max()) <= LONGEST and int(bounds[-1]) - int(bounds[0]) <= most_bytes


def last_of_short(
    keys: pa.BinaryArray,
    logs: NDArray[np.int32] | None,
    hashes_of: Callable[[Iterator[NDArray[np.uint64]]], NDArray[np.uint64]] = hashes_of_words,
    piece: int = _PIECE,
) -> LastRows:
    """Finds the last row of each of short `keys` and `logs`, the number of each one's log; None: all have the same.

    Rows that have as many bits of their hashes in common as are sorted by, but not the key, are `unlike`. So many keys
    are looked at together as `piece` says.
    """
    words, count = _Words(keys, logs), len(keys)
    bits = np.uint64(count.bit_length())
    packed = np.empty(count, np.uint64)  # the upper bits of a hash, and the row below them
    for at in range(0, count, piece):
        rows = np.arange(at, min(at + piece, count))
        packed[at : at + piece] = (hashes_of(words.of(rows)) >> bits << bits) | rows.view(np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).view(np.int64)
    packed >>= bits
    is_last = np.append(packed[1:] != packed[:-1], np.True_)
    unequal = _unequal(words, order, is_last, piece)
    if not len(unequal):
        return LastRows(order[is_last], unequal)
    unlike = np.isin(packed, packed[unequal])
    return LastRows(order[is_last & ~unlike], np.sort(order[unlike]))


class _Words:
    """The words of short keys. Two keys are equal if all their words are."""

    def __init__(self, keys: pa.BinaryArray, logs: NDArray[np.int32] | None) -> None:
        bounds = _bounds(keys)
        first, size = int(bounds[0]), int(bounds[-1] - bounds[0])
        # Aligned, as NumPy takes five times as long for words that are not; with room after the last key.
        self._held = np.zeros((size + LONGEST) // _WORD + 2, "<u8")
        self._held.view(np.uint8)[:size] = np.frombuffer(keys.buffers()[2] or b"", np.uint8)[first : first + size]
        self._bounds = bounds if first == 0 else bounds - np.int32(first)
        self._logs = logs
        # The words of every key's bytes are as many as the longest key has: a hash depends on nothing but the key.
        self._longest = int(np.diff(bounds).max())

    def of(self, rows: NDArray[np.int64]) -> Iterator[NDArray[np.uint64]]:
        """Yields the first word of each of `rows`, its length and its log; then the words of its bytes, in order.

        There are as many words as the longest of all keys has; after a key's end come zeros.
        """
        starts = self._bounds.take(rows)
        lengths = self._bounds.take(rows + 1) - starts
        head = lengths.astype(np.uint64)
        if self._logs is not None:
            head |= self._logs[rows].astype(np.uint64) << _HALF
        yield head
        shortest = int(lengths.min())
        for begin in range(0, self._longest, _WORD):
            word = self._word_at(starts + np.int32(begin))
            if shortest < begin + _WORD:
                word <<= (np.clip(begin + _WORD - lengths, 0, _WORD) << 3).astype(np.uint64)  # 64 bits leave nothing
            yield word

    def _word_at(self, starts: NDArray[np.int32]) -> NDArray[np.uint64]:
        """Returns the word that begins at each of these bytes: the upper part of one that is held, and of the next."""
        places = starts >> 3
        bits = ((starts & 7) << 3).astype(np.uint64)
        word = self._held.take(places) >> bits
        word |= self._held.take(places + 1) << (_64 - bits)  # 64 bits leave nothing
        return word


def _bounds(keys: pa.BinaryArray) -> NDArray[np.int32]:
    """Returns the first byte of each key in the buffer of bytes, and the end of the last one."""
    return np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]


def _unequal(words: _Words, order: NDArray[np.int64], is_last: NDArray[np.bool_], piece: int) -> NDArray[np.int64]:
    """Returns the places in `order` of rows that have another key than the next one, and are not the last of a hash.

    A row that is not the last of its hash is compared with the next one, any other with none: if keys come once, next
    to no row is looked at. If most rows are compared, all are looked at, so that none is twice.
    """
    compared = np.flatnonzero(~is_last)
    if 2 * len(compared) > len(order):
        compared = np.arange(len(order) - 1)
    is_each = len(compared) == len(order) - 1
    unequal = [compared[:0]]
    for at in range(0, len(compared), piece):
        places = compared[at : at + piece]
        differ = np.zeros(len(places), np.bool_)
        if is_each:
            for word in words.of(order[at : at + piece + 1]):
                differ |= word[1:] != word[:-1]
            differ &= ~is_last[places]
        else:
            for word, following in zip(words.of(order[places]), words.of(order[places + 1]), strict=True):
                differ |= word != following
        if differ.any():
            unequal.append(places[differ])
    return np.concatenate(unequal)
