"""The format of an index file: blocks of entries by hash, then a directory of the blocks. Pure.

    block 0 … block m - 1    each: `ENTRIES` hashes (uint64, rising), then as many deltas (4, 6 or 8 bytes each), then,
                             if the file has them, as many spellings (uint64); the last block may have fewer
    directory                header (`_HEADER`), then of all blocks the first hashes (uint64) and the CRC-32s (uint32)

All numbers are little-endian. An entry is a record: the hash of its key (`key_hash.hashes_of`, with the number of its
log in the file, and the secret of the file, which its sections have) and its offset above the first one of the log in
the file. Entries of one hash come by delta. A spelling is the hash of the key as it came, without the number of a log:
files have them if keys are compared by an identity, as two keys of one identity may differ.

So the directory, 24 bytes for 1,000 entries, says which one or two blocks have a hash, and a block is small enough to
be read for one key. A hash that is not there is not in its block either: no filter is needed in addition.
"""

from __future__ import annotations

import struct
import sys
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]

ENTRIES: Final = 512
"""Entries of a block: 6 KiB. Half of it would double the directory; twice as much would be read for each key."""

FEW: Final = 8
"""How many keys are looked up one by one. One takes 5 µs in a file of which its block is remembered, many together
some 150 µs and a read of the disk, however few they are."""

VERSION: Final = 1
WITH_SPELLINGS: Final = 2
"""The version of files with spellings. An older keyfold knows no such version, and does without their entries."""

# Magic, version, bytes of a delta, entries of a full block, entries of the file.
_HEADER: Final = struct.Struct("<4sBBxxIQ")
_MAGIC: Final = b"KFIX"

_HASH: Final = 8
"""Bytes of a hash."""

_64: Final = (1 << 64) - 1

NARROW: Final = 1 << 32
"""Deltas below it take 4 bytes."""

_IS_LITTLE: Final = sys.byteorder == "little"
"""Whether numbers of a file are those of this machine: to search them without NumPy takes a fifth of the time."""

_WIDTHS: Final = (4, 6, 8)
"""Bytes of a delta, the same for all of a file: as few as the largest needs. With 6, an entry with a spelling takes 22
bytes in a log of up to 2^48 offsets; an older keyfold does without the entries of such a file."""


class Directory(Struct, frozen=True):
    """What a file's directory says: `width` bytes for a delta, `entries` of the file, and a row for each block.

    `has_spellings`: each entry has one.
    """

    width: int
    has_spellings: bool
    entries: int
    firsts: Hashes
    checksums: NDArray[np.uint32]

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.firsts)

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry."""
        return _HASH + self.width + _HASH * self.has_spellings

    def bounds(self, block: int) -> tuple[int, int]:
        """Returns the first byte of `block` in its file, and the byte after its last."""
        size = ENTRIES * self.entry_bytes
        return block * size, min((block + 1) * ENTRIES, self.entries) * self.entry_bytes

    def blocks_of(self, hashes: Hashes) -> Numbers:
        """Returns for each of `hashes` the last block that can hold it; -1 if none can."""
        return np.searchsorted(self.firsts, hashes, side="right").astype(np.int64) - 1

    def last_block_of(self, hash_: int) -> int:
        """Returns what `blocks_of` does of one hash."""
        return bisect_right(self.firsts.data, hash_) - 1

    def first_blocks_of(self, hashes: Hashes) -> Numbers:
        """Returns for each of `hashes` the first block that can hold it."""
        return np.maximum(np.searchsorted(self.firsts, hashes, side="left").astype(np.int64) - 1, 0)


class SearchedEntries(NamedTuple):
    """Hashes and deltas of entries in order, as integers of Python for `bisect`; `spellings` are empty without any.

    NumPy gives the interpreter's lock away with each search. Among the threads of a worker it is a millisecond until a
    look-up has it again, and a look-up searches some hundred times.
    """

    hashes: Sequence[int]
    deltas: Sequence[int]
    spellings: Sequence[int] = ()

    def has_any(self, hashes: Hashes) -> bool:
        """Returns whether there is an entry of some of `hashes`, which are many."""
        own = np.asarray(self.hashes)
        places = np.searchsorted(own, hashes)
        return len(own) > 0 and bool((own[places % len(own)] == hashes).any())

    def newest(self, hash_: int, below: int) -> tuple[int | None, bool]:
        """Returns the largest delta below `below` of a hash, None if there is none, and whether the first entry has it.

        Then a block before this one may have more of them.
        """
        begin = bisect_left(self.hashes, hash_)
        end = bisect_right(self.hashes, hash_, begin)
        fitting = bisect_left(self.deltas, below, begin, end)
        return (self.deltas[fitting - 1] if fitting > begin else None), begin == 0 < end

    def other_than(self, hash_: int, spelling: int | None) -> Sequence[int]:
        """Returns all deltas of a hash, but those of entries with this `spelling`, if they have spellings."""
        begin = bisect_left(self.hashes, hash_)
        end = bisect_right(self.hashes, hash_, begin) if begin < len(self.hashes) else begin
        if spelling is None or not self.spellings:
            return self.deltas[begin:end]
        return [self.deltas[at] for at in range(begin, end) if self.spellings[at] != spelling]


class Entries(NamedTuple):
    """Entries in order; `spellings` is None if they have none."""

    hashes: Hashes
    deltas: Numbers
    spellings: Hashes | None

    def take(self, places: NDArray[np.int64]) -> Entries:
        """Returns those at `places`."""
        spellings = None if self.spellings is None else self.spellings.take(places)
        return Entries(self.hashes.take(places), self.deltas.take(places), spellings)


class BlocksWriter:
    """Encodes entries that come by hash: `add` returns blocks as they become full, `finish` the rest."""

    def __init__(self, largest_delta: int, *, has_spellings: bool = False) -> None:
        self.entries = 0
        self._has_spellings = has_spellings
        self._width = next(width for width in _WIDTHS if largest_delta < 1 << 8 * width)
        # First hash and checksum of each block that was given.
        self._firsts: list[Hashes] = []
        self._checksums: list[int] = []
        # Entries that do not fill a block yet.
        self._hashes, self._deltas = np.empty(0, np.uint64), np.empty(0, np.int64)
        self._spellings = np.empty(0, np.uint64)

    def add(self, entries: Entries) -> bytes:
        """Adds entries, by hash and delta, none below those that came before; returns the blocks that are full."""
        hashes, deltas, spellings = entries
        self._hashes = np.concatenate((self._hashes, hashes))
        self._deltas = np.concatenate((self._deltas, deltas))
        if spellings is not None:
            self._spellings = np.concatenate((self._spellings, spellings))
        full = len(self._hashes) // ENTRIES * ENTRIES
        return self._take(full)

    def finish(self) -> tuple[bytes, bytes]:
        """Returns the last block, which may be empty, and the directory."""
        rest = self._take(len(self._hashes))
        version = WITH_SPELLINGS if self._has_spellings else VERSION
        header = _HEADER.pack(_MAGIC, version, self._width, ENTRIES, self.entries)
        firsts = np.concatenate((*self._firsts, np.empty(0, np.uint64))).astype("<u8").tobytes()
        return rest, header + firsts + np.array(self._checksums, "<u4").tobytes()

    def _take(self, count: int) -> bytes:
        """Encodes the first `count` entries that wait: full blocks, or less than a block at the end."""
        if not count:
            return b""
        hashes, deltas = self._hashes[:count], self._deltas[:count]
        self._hashes, self._deltas = self._hashes[count:], self._deltas[count:]
        size = min(count, ENTRIES)
        columns = [_bytes_of(hashes, _HASH), _bytes_of(deltas, self._width)]
        if self._has_spellings:
            columns.append(_bytes_of(self._spellings[:count], _HASH))
            self._spellings = self._spellings[count:]
        blocks = np.hstack([column.reshape(count // size, -1) for column in columns])
        self.entries += count
        self._firsts.append(hashes[::size].copy())  # a view would keep all hashes in memory
        self._checksums.extend(zlib.crc32(block.data) for block in blocks)
        return blocks.tobytes()


def decode_directory(data: bytes) -> Directory | None:
    """Decodes a directory; None if it is not one of this version."""
    if len(data) < _HEADER.size:
        return None
    magic, version, width, size, entries = _HEADER.unpack_from(data)
    blocks = -(-entries // ENTRIES)
    length = _HEADER.size + blocks * (_HASH + 4)
    if (magic, size, len(data)) != (_MAGIC, ENTRIES, length) or width not in _WIDTHS:
        return None
    if version not in (VERSION, WITH_SPELLINGS):
        return None
    firsts = np.frombuffer(data, "<u8", blocks, _HEADER.size).astype(np.uint64)  # aligned
    return Directory(
        width,
        version == WITH_SPELLINGS,
        entries,
        firsts,
        np.frombuffer(data, "<u4", blocks, _HEADER.size + blocks * _HASH).astype(np.uint32),
    )


def is_intact(directory: Directory, block: int, data: memoryview) -> bool:
    """Returns whether `data` is what was written as `block`."""
    return zlib.crc32(data) == directory.checksums[block]


def decode_blocks(directory: Directory, blocks: Sequence[memoryview]) -> Entries:
    """Decodes the entries of `blocks`, which rise: all are full, but for the last one of the file."""
    size = directory.entry_bytes
    full = b"".join(block for block in blocks if len(block) == ENTRIES * size)
    rest = b"".join(block for block in blocks if len(block) < ENTRIES * size)
    parts = [_decoded(full, directory, ENTRIES), _decoded(rest, directory, max(1, len(rest) // size))]
    hashes, deltas, spellings = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Entries(hashes, deltas.astype(np.int64), spellings if directory.has_spellings else None)


def searched_block(directory: Directory, block: memoryview) -> SearchedEntries:
    """Decodes the entries of one block, without copying them if that is possible."""
    count = len(block) // directory.entry_bytes
    if _IS_LITTLE and directory.width == _WIDTHS[0]:
        ends = count * _HASH, count * (_HASH + directory.width)
        spelled_by = block[ends[1] :].cast("Q") if directory.has_spellings else ()
        return SearchedEntries(block[: ends[0]].cast("Q"), block[ends[0] : ends[1]].cast("I"), spelled_by)
    hashes = np.frombuffer(block, "<u8", count).astype(np.uint64, copy=False)
    deltas = _numbers_of(np.frombuffer(block, np.uint8, count * directory.width, count * _HASH), directory.width)
    entries = SearchedEntries(hashes.data, deltas.astype(np.int64).data)
    if not directory.has_spellings:
        return entries
    spellings = np.frombuffer(block, "<u8", count, count * (_HASH + directory.width))
    aligned = np.require(spellings, np.uint64, "A")  # those of an odd number of entries are not, which `data` refuses
    return entries._replace(spellings=aligned.data)


def searched(directory: Directory, blocks: Sequence[memoryview]) -> SearchedEntries:
    """Decodes the hashes and deltas of `blocks`, as `decode_blocks`."""
    hashes, deltas, _ = decode_blocks(directory, blocks)
    narrow = np.uint32 if directory.width == _WIDTHS[0] else np.int64  # half of the memory
    return SearchedEntries(hashes.astype(np.uint64).data, deltas.astype(narrow).data)


def _decoded(data: bytes, directory: Directory, entries: int) -> tuple[Hashes, NDArray[np.unsignedinteger], Hashes]:
    """Decodes blocks of so many `entries` each; there are no spellings if they have none."""
    blocks = np.frombuffer(data, np.uint8).reshape(-1, entries * directory.entry_bytes)
    ends = [entries * _HASH, entries * (_HASH + directory.width)]
    columns = zip(np.split(blocks, ends, axis=1), (_HASH, directory.width, _HASH), strict=True)
    hashes, deltas, spellings = (_numbers_of(np.ascontiguousarray(column), width) for column, width in columns)
    return hashes, deltas, spellings


def _bytes_of(numbers: NDArray[Any], width: int) -> NDArray[np.uint8]:
    """Returns the lowest `width` bytes of each number."""
    if width in (4, 8):
        return numbers.astype(f"<u{width}", copy=False).view(np.uint8)
    return np.ascontiguousarray(numbers.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width])


def _numbers_of(data: NDArray[np.uint8], width: int) -> NDArray[np.unsignedinteger]:
    """Returns the numbers of `width` bytes each; those of 4 as uint32."""
    if width in (4, 8):
        return data.view(f"<u{width}").ravel()
    wide = np.zeros((data.size // width, 8), np.uint8)
    wide[:, :width] = data.reshape(-1, width)
    return wide.view("<u8").ravel()


def in_order(entries: Entries) -> Entries:
    """Returns `entries` by hash, and those of one hash by delta.

    The upper bits of a hash are sorted together with the row's number in the lower ones: half the time of `argsort`.
    Rows of one log come by offset, so entries of one hash are then by delta. What few are not is sorted once more.
    """
    rows = (1 << len(entries.hashes).bit_length()) - 1
    keys = entries.hashes & np.uint64(~rows & _64)
    keys |= np.arange(len(keys), dtype=np.uint64)
    keys.sort()
    keys &= np.uint64(rows)
    ordered = entries.take(keys.view(np.int64))
    if (ordered.hashes[1:] < ordered.hashes[:-1]).any():  # they differ in lower bits; few do: a stable sort is fast
        ordered = ordered.take(np.argsort(ordered.hashes, kind="stable"))
    hashes, deltas, _ = ordered
    if ((hashes[1:] == hashes[:-1]) & (deltas[1:] < deltas[:-1])).any():  # two logs with one hash
        return entries.take(np.lexsort((entries.deltas, entries.hashes)))
    return ordered


def newest(
    hashes: Hashes, deltas: Numbers, wanted: Hashes, places: Numbers, below: int
) -> tuple[Numbers, NDArray[np.bool_]]:
    """Returns the largest delta below `below` of each hash `wanted`, by entries in order; -1 if there is none.

    `places` are the first entries of the block that each is looked up in: blocks before it, which are there for other
    hashes, may be followed by some that are not there, with later entries of that hash. The second array says which may
    be in an earlier block: the entries begin a block with that hash.
    """
    starts = np.maximum(np.searchsorted(hashes, wanted, side="left"), places)
    ends = np.searchsorted(hashes, wanted, side="right")
    last = np.full(len(wanted), -1)
    once = ends - starts == 1
    last[once] = deltas[starts[once]]
    last[last >= below] = -1
    for place in np.flatnonzero(ends - starts > 1).tolist():
        own = deltas[starts[place] : ends[place]]
        fitting = int(np.searchsorted(own, below, side="left"))
        last[place] = own[fitting - 1] if fitting else -1
    return last, (last < 0) & (ends > starts) & (starts % ENTRIES == 0)


class Spelled(NamedTuple):
    """Hashes that are asked for, which rise, each with the spelling of its key.

    `is_spelled` is False if keys that differ have one hash: every entry of it is given.
    """

    hashes: Hashes
    spellings: Hashes
    is_spelled: NDArray[np.bool_]

    def take(self, places: NDArray[np.int64]) -> Spelled:
        """Returns those at `places`."""
        return Spelled(self.hashes[places], self.spellings[places], self.is_spelled[places])


def spelled(hashes: Hashes, spellings: Hashes) -> Spelled:
    """Returns `hashes` once each, with their `spellings`."""
    pairs = np.unique(np.stack((hashes, spellings)), axis=1)
    once, firsts, counts = np.unique(pairs[0], return_index=True, return_counts=True)
    return Spelled(once, pairs[1][firsts], counts == 1)


def every(entries: Entries, wanted: Hashes) -> Numbers:
    """Returns all deltas of the hashes `wanted`."""
    return entries.deltas[_rows(entries, wanted)[0]]


def spelled_otherwise(entries: Entries, wanted: Spelled) -> Numbers:
    """Returns all deltas of the hashes `wanted` but those of entries that have the same spelling."""
    rows, owners = _rows(entries, wanted.hashes)
    if entries.spellings is None:
        return entries.deltas[rows]
    is_other = (entries.spellings[rows] != wanted.spellings[owners]) | ~wanted.is_spelled[owners]
    return entries.deltas[rows[is_other]]


def _rows(entries: Entries, wanted: Hashes) -> tuple[Numbers, Numbers]:
    """Returns the rows of the entries of `wanted`, and of each the place of its hash in `wanted`."""
    starts = np.searchsorted(entries.hashes, wanted, side="left")
    counts = np.searchsorted(entries.hashes, wanted, side="right") - starts
    return spans(starts, counts), np.repeat(np.arange(len(wanted)), counts)


def spans(starts: Numbers, counts: Numbers) -> Numbers:
    """Returns the numbers from each of `starts` on, as many as its count, one span after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)
