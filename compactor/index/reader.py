"""Looks many keys up in an index file, by ranged reads: its directory, then the blocks that can have their hashes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from compactor.errors import DamagedFileError
from compactor.index.blocks import (
    ENTRIES,
    Directory,
    Hashes,
    Numbers,
    decode_blocks,
    decode_directory,
    every,
    is_intact,
    newest,
    spans,
)
from compactor.index.section import IndexSection, fingerprint
from compactor.model.key_hash import hashes_of
from compactor.remembered import Remembered
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GAP: Final = 128 << 10
"""Bytes of blocks that are read along, though none asks for them, in an object store: a request costs more."""

_AT_ONCE: Final = 8 << 20
"""Bytes of blocks that are read at once, and held."""

_REMEMBERED: Final = 64 << 20
"""Bytes of directories that a process remembers: those of 2,500 million records."""

REMADE: Final = (
    "Nothing is lost, looking keys up takes longer. Remove that file: the worker cleans its partitions, which writes "
    "another one."
)


class Directories(Remembered[Directory]):
    """Remembers the directories of index files by location and path."""

    def __init__(self, most_bytes: int = _REMEMBERED) -> None:
        super().__init__(most_bytes)


DIRECTORIES: Final = Directories()
"""Those that this process has read."""


def newest_offsets(
    storage: Storage, section: IndexSection, keys: pa.Array, start: int, end: int, known: Directories = DIRECTORIES
) -> Numbers:
    """Returns for each of `keys`, as compared, the largest of its offsets in [start, end), or NO_OFFSET.

    The record there has the key's hash; whether it has the key, the record alone says. A key without an offset has no
    record in the files that the index is of.

    Raises MissingFileError; DamagedFileError if the file is not what was written; StorageError.
    """
    return _SectionReader(storage, section, known).newest(_hashes(keys, section), start, end)


def all_offsets(
    storage: Storage, section: IndexSection, keys: pa.Array, start: int, end: int, known: Directories = DIRECTORIES
) -> Numbers | None:
    """Returns all offsets in [start, end) of the hashes of `keys`, as compared, rising.

    None if they are many (_MOST_BLOCKS), as of a key that is written again and again: to read all keys takes no longer.
    Raises as `newest_offsets`.
    """
    return _SectionReader(storage, section, known).every(np.unique(_hashes(keys, section)), start, end)


_MOST_BLOCKS: Final = 64
"""Blocks beyond one or two for each hash: some 32,000 records of keys that have several."""

NO_OFFSET: Final = np.iinfo(np.int64).min
"""Stands for no offset: those of tombstones that a generation begins with are negative."""


def _hashes(keys: pa.Array, section: IndexSection) -> Hashes:
    return hashes_of(keys, pa.array(np.full(len(keys), section.log, np.int32)), secret=section.secret)


class _SectionReader:
    """Reads one file for one log."""

    def __init__(self, storage: Storage, section: IndexSection, known: Directories) -> None:
        self._storage = storage
        self._section = section
        self._known = known

    def newest(self, hashes: Hashes, start: int, end: int) -> Numbers:
        first = self._section.first
        offsets = np.full(len(hashes), NO_OFFSET)
        if end <= first:
            return offsets
        with self._storage.open_input(self._section.path, self._section.bytes) as source:
            directory = self._directory(source)
            blocks = directory.blocks_of(hashes)
            waiting = np.flatnonzero(blocks >= 0)
            while len(waiting):
                waiting = waiting[np.argsort(blocks[waiting], kind="stable")]
                again = [waiting[:0]]
                for places, entries in self._read(source, directory, blocks, waiting):
                    _, block = np.unique(blocks[places], return_inverse=True)  # those that were read, in their order
                    deltas, is_earlier = newest(*entries, hashes[places], block * ENTRIES, end - first)
                    offsets[places] = np.where(deltas < 0, NO_OFFSET, first + deltas)
                    again.append(places[is_earlier])
                waiting = np.concatenate(again)
                blocks[waiting] -= 1
                waiting = waiting[blocks[waiting] >= 0]
        offsets[offsets < start] = NO_OFFSET
        return offsets

    def every(self, hashes: Hashes, start: int, end: int) -> Numbers | None:
        first = self._section.first
        offsets = [np.empty(0, np.int64)]
        if end > first:
            with self._storage.open_input(self._section.path, self._section.bytes) as source:
                directory = self._directory(source)
                lowest = directory.first_blocks_of(hashes)
                counts = np.maximum(directory.blocks_of(hashes) - lowest + 1, 0)
                if counts.sum() > 2 * len(hashes) + _MOST_BLOCKS:
                    return None
                blocks, owners = spans(lowest, counts), np.repeat(np.arange(len(hashes)), counts)
                for places, entries in self._read(source, directory, blocks, np.argsort(blocks, kind="stable")):
                    offsets.append(first + every(*entries, hashes[np.unique(owners[places])]))
        asked = np.unique(np.concatenate(offsets))
        return asked[(asked >= start) & (asked < end)]

    def _read(
        self, source: pa.NativeFile, directory: Directory, blocks: Numbers, waiting: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], tuple[Hashes, Numbers]]]:
        """Yields the blocks that `waiting` ask for, some at a time, with those of `waiting` that ask for them.

        `waiting` are in the order of their blocks.
        """
        numbers, firsts = np.unique(blocks[waiting], return_index=True)
        most = max(1, _AT_ONCE // directory.bounds(0)[1])
        ends = np.append(firsts[1:], len(waiting))
        for at in range(0, len(numbers), most):
            some = numbers[at : at + most].tolist()
            data = [
                piece
                for together in self._together(directory, some)
                for piece in self._pieces(source, directory, together)
            ]
            yield waiting[firsts[at] : ends[at + len(some) - 1]], decode_blocks(directory, data)

    def _pieces(self, source: pa.NativeFile, directory: Directory, blocks: Sequence[int]) -> Iterator[memoryview]:
        """Reads `blocks` by one request; yields each. Raises DamagedFileError."""
        lowest, end = directory.bounds(blocks[0])[0], directory.bounds(blocks[-1])[1]
        source.seek(lowest)
        data = memoryview(source.read(end - lowest))
        for block in blocks:
            begin, stop = directory.bounds(block)
            piece = data[begin - lowest : stop - lowest]
            if not is_intact(directory, block, piece):
                raise self._damaged(f"its block {block} is")
            yield piece

    def _together(self, directory: Directory, blocks: Sequence[int]) -> Iterator[list[int]]:
        """Groups `blocks`, which rise, by what is read at once."""
        gap = 0 if self._storage.is_folder else _GAP
        group: list[int] = []
        for block in blocks:
            begin, end = directory.bounds(block)
            if group and (
                begin - directory.bounds(group[-1])[1] > gap or end - directory.bounds(group[0])[0] > _AT_ONCE
            ):
                yield group
                group = []
            group.append(block)
        yield group

    def _directory(self, source: pa.NativeFile) -> Directory:
        place = self._storage.location, self._section.path
        if (known := self._known.get(place)) is not None:
            return known
        size = self._section.directory_bytes
        source.seek(max(0, self._section.bytes - size))
        data = source.read(size)
        directory = decode_directory(data) if fingerprint(data) == self._section.checksum else None
        if directory is None:
            raise self._damaged("its directory is")
        self._known.put(place, directory, size)
        return directory

    def _damaged(self, what: str) -> DamagedFileError:
        where = f"{self._storage.location}/{self._section.path}"
        return DamagedFileError(f"The index {where} is damaged: {what} not what was written.", REMADE)
