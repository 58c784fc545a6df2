"""Looks keys up in an index file, by ranged reads: its directory, then the blocks that can have their hashes.

Few keys are looked up one by one, in blocks that a process remembers: a worker that answers them asks the same files
again and again. Many keys are looked up together, in blocks that are read for them and not remembered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa

from compactor.errors import DamagedFileError
from compactor.index.blocks import (
    ENTRIES,
    Directory,
    Entries,
    Hashes,
    Numbers,
    decode_blocks,
    decode_directory,
    every,
    is_intact,
    newest,
    spans,
    spelled,
    spelled_otherwise,
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


_BLOCK_BYTES: Final = 96 << 20
"""Bytes of blocks that a process remembers: those of 4 million records. Of more keys, those asked for last."""

_A_BLOCK: Final = ENTRIES * 24 + 600
"""What a block takes in memory at most: 24 bytes for each entry, three arrays, and its place."""

_JOINED: Final = 4
"""If a file has fewer entries than so many for each key that is asked for, all of them are read and joined with the
keys. To search for one key takes 0.3 µs, and a large publish asks for most of its keys in vain. 16 bytes an entry are
held."""

_SPARSE: Final = 8
"""How many bits there are for each entry of such a file: one key of eight is searched for without being there."""

FEW: Final = 8
"""How many keys are looked up one by one. One takes 5 µs in a file of which its block is remembered, many together
some 150 µs and a read of the disk, however few they are."""


class KnownIndexes:
    """Remembers directories and blocks of index files, which never change; threads share it."""

    def __init__(self, directory_bytes: int = _REMEMBERED, block_bytes: int = _BLOCK_BYTES) -> None:
        # By location and path.
        self.directories = Remembered[Directory](directory_bytes)
        # By location, path, and number.
        self.blocks = Remembered[Entries](block_bytes)


KNOWN: Final = KnownIndexes()
"""Those that this process has read."""


class AskedKeys:
    """Keys, as compared, with their hashes: these are made once for all files that have one secret."""

    def __init__(self, keys: pa.Array) -> None:
        self.keys = keys
        # By secret and number of the log.
        self._hashes: dict[tuple[str, int], Hashes] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def hashes(self, section: IndexSection) -> Hashes:
        """Returns the hash of each key in the file of `section`."""
        made_with = section.secret, section.log
        known = self._hashes.get(made_with)
        if known is None:
            logs = pa.array(np.full(len(self.keys), section.log, np.int32))
            known = self._hashes[made_with] = hashes_of(self.keys, logs, secret=section.secret)
        return known

    def filter(self, wanted: NDArray[np.bool_]) -> AskedKeys:
        """Returns those of the keys that are `wanted`."""
        some = AskedKeys(self.keys.filter(pa.array(wanted)))
        some._hashes = {made_with: hashes[wanted] for made_with, hashes in self._hashes.items()}
        return some


def newest_offsets(
    storage: Storage, section: IndexSection, asked: AskedKeys, start: int, end: int, known: KnownIndexes = KNOWN
) -> Numbers:
    """Returns for each key that is `asked` for the largest of its offsets in [start, end), or NO_OFFSET.

    The record there has the key's hash; whether it has the key, the record alone says. A key without an offset has no
    record in the files that the index is of.

    Raises MissingFileError; DamagedFileError if the file is not what was written; StorageError.
    """
    with _SectionReader(storage, section, known) as reader:
        hashes = asked.hashes(section)
        return (reader.newest_of_few if len(hashes) <= FEW else reader.newest)(hashes, start, end)


def has_none(storage: Storage, section: IndexSection, asked: AskedKeys, known: KnownIndexes = KNOWN) -> bool:
    """Returns whether what is remembered of a file says that it has no entry of any key; False says nothing.

    So a worker passes over most runs, some dozens while records come, without asking the store.
    """
    if len(asked) > FEW:
        return False
    location, path = storage.location, section.path
    directory = known.directories.get((location, path))
    if directory is None:
        return False
    for hash_ in asked.hashes(section):
        block = directory.last_block_of(hash_)
        if block < 0:
            continue
        entries = known.blocks.get((location, path, block))
        if entries is None:
            return False
        hashes = entries.hashes
        at = int(hashes.searchsorted(hash_))
        if at < len(hashes) and hashes[at] == hash_:
            return False
    return True


def all_offsets(
    storage: Storage,
    section: IndexSection,
    asked: AskedKeys,
    start: int,
    end: int,
    known: KnownIndexes = KNOWN,
    *,
    other_than: pa.Array | None = None,
) -> Numbers | None:
    """Returns all offsets in [start, end) of the hashes of the keys that are `asked` for, rising.

    `other_than` has for each of these a key as it came: records with that very key are left out, as far as the file
    has spellings.

    None if they are many (_MOST_BLOCKS), as of a key that is written again and again: to read all keys takes no longer.
    Raises as `newest_offsets`.
    """
    with _SectionReader(storage, section, known) as reader:
        return reader.every(asked.hashes(section), start, end, other_than)


_MOST_BLOCKS: Final = 64
"""Blocks beyond one or two for each hash: some 32,000 records of keys that have several."""

NO_OFFSET: Final = np.iinfo(np.int64).min
"""Stands for no offset: those of tombstones that a generation begins with are negative."""


class _SectionReader:
    """Reads one file for one log; a context, as the file is opened once something of it is not remembered."""

    def __init__(self, storage: Storage, section: IndexSection, known: KnownIndexes) -> None:
        self._storage = storage
        self._section = section
        self._known = known
        self._place = storage.location, section.path
        # The file, None until something of it is read; and what closes it.
        self._opened: pa.NativeFile | None = None
        self._closed = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.close()

    def newest_of_few(self, hashes: Hashes, start: int, end: int) -> Numbers:
        """Returns what `newest` does, a hash after the other, by blocks that are remembered."""
        first = self._section.first
        if end <= first:
            return np.full(len(hashes), NO_OFFSET)
        directory = self._directory()
        deltas = (self._newest_delta(directory, hash_, end - first) for hash_ in hashes)
        offsets = (NO_OFFSET if delta is None else first + delta for delta in deltas)
        return np.array([offset if offset >= start else NO_OFFSET for offset in offsets], np.int64)

    def _newest_delta(self, directory: Directory, hash_: np.uint64, below: int) -> int | None:
        """Returns the largest delta below `below` of a hash, None if there is none."""
        block = directory.last_block_of(hash_)
        while block >= 0:
            hashes, deltas, _ = self._block(directory, block)
            begin = int(hashes.searchsorted(hash_))
            if begin == len(hashes) or hashes[begin] != hash_:
                return None
            own = deltas[begin : int(hashes.searchsorted(hash_, side="right"))]
            fitting = int(own.searchsorted(below))
            if fitting:
                return int(own[fitting - 1])
            if begin:
                return None
            block -= 1  # the block begins with this hash: the one before may end with it
        return None

    def _block(self, directory: Directory, block: int) -> Entries:
        """Returns the entries of a block, which are read if they are not remembered."""
        place = *self._place, block
        known = self._known.blocks.get(place)
        if known is None:
            (data,) = self._pieces(directory, [block])
            known = self._known.blocks.put(place, decode_blocks(directory, [data]), _A_BLOCK)
        return known

    def newest(self, hashes: Hashes, start: int, end: int) -> Numbers:
        first = self._section.first
        offsets = np.full(len(hashes), NO_OFFSET)
        if end <= first:
            return offsets
        directory = self._directory()
        if len(hashes) * _JOINED > directory.entries:
            offsets = self._joined(directory, hashes, end)
        else:
            offsets = self._searched(directory, hashes, end)
        offsets[offsets < start] = NO_OFFSET
        return offsets

    def _joined(self, directory: Directory, hashes: Hashes, end: int) -> Numbers:
        """Returns what `_searched` does, by all entries; keys that have none of their first bits are left out."""
        every, offsets = np.arange(directory.blocks), np.full(len(hashes), NO_OFFSET)
        read = [entries for _, entries in self._read(directory, every, every)]
        if not read:
            return offsets
        own, deltas = np.concatenate([each.hashes for each in read]), np.concatenate([each.deltas for each in read])
        places = max(_SPARSE, (directory.entries * _SPARSE).bit_length())
        shift, is_there = np.uint64(64 - places), np.zeros(1 << places, np.bool_)
        is_there[own >> shift] = True
        may_have = np.flatnonzero(is_there[hashes >> shift])
        deltas_of, _ = newest(
            own, deltas, hashes[may_have], np.zeros(len(may_have), np.int64), end - self._section.first
        )
        offsets[may_have] = np.where(deltas_of < 0, NO_OFFSET, self._section.first + deltas_of)
        return offsets

    def _searched(self, directory: Directory, hashes: Hashes, end: int) -> Numbers:
        """Returns for each of `hashes` the largest offset below `end`, or NO_OFFSET, by the blocks that may have it."""
        first = self._section.first
        offsets = np.full(len(hashes), NO_OFFSET)
        blocks = directory.blocks_of(hashes)
        waiting = np.flatnonzero(blocks >= 0)
        while len(waiting):
            waiting = waiting[np.argsort(blocks[waiting], kind="stable")]
            again = [waiting[:0]]
            for places, entries in self._read(directory, blocks, waiting):
                _, block = np.unique(blocks[places], return_inverse=True)  # those that were read, in their order
                deltas, is_earlier = newest(
                    entries.hashes, entries.deltas, hashes[places], block * ENTRIES, end - first
                )
                offsets[places] = np.where(deltas < 0, NO_OFFSET, first + deltas)
                again.append(places[is_earlier])
            waiting = np.concatenate(again)
            blocks[waiting] -= 1
            waiting = waiting[blocks[waiting] >= 0]
        return offsets

    def every(self, asked: Hashes, start: int, end: int, other_than: pa.Array | None) -> Numbers | None:
        first, wanted = self._section.first, None
        if other_than is not None:
            logs = pa.array(np.zeros(len(other_than), np.int32))
            wanted = spelled(asked, hashes_of(other_than, logs, secret=self._section.secret))
        hashes, offsets = np.unique(asked), [np.empty(0, np.int64)]
        if end > first:
            directory = self._directory()
            lowest = directory.first_blocks_of(hashes)
            counts = np.maximum(directory.blocks_of(hashes) - lowest + 1, 0)
            if counts.sum() > 2 * len(hashes) + _MOST_BLOCKS:
                return None
            blocks, owners = spans(lowest, counts), np.repeat(np.arange(len(hashes)), counts)
            for places, entries in self._read(directory, blocks, np.argsort(blocks, kind="stable")):
                own = np.unique(owners[places])
                held = every(entries, hashes[own]) if wanted is None else spelled_otherwise(entries, wanted.take(own))
                offsets.append(first + held)
        together = np.unique(np.concatenate(offsets))
        return together[(together >= start) & (together < end)]

    def _read(
        self, directory: Directory, blocks: Numbers, waiting: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], Entries]]:
        """Yields the blocks that `waiting` ask for, some at a time, with those of `waiting` that ask for them.

        `waiting` are in the order of their blocks.
        """
        numbers, firsts = np.unique(blocks[waiting], return_index=True)
        if not len(numbers):  # an index of nothing but rejected records has no block
            return
        most = _AT_ONCE // (ENTRIES * directory.entry_bytes)
        ends = np.append(firsts[1:], len(waiting))
        for at in range(0, len(numbers), most):
            some = numbers[at : at + most].tolist()
            data = [
                piece for together in self._together(directory, some) for piece in self._pieces(directory, together)
            ]
            yield waiting[firsts[at] : ends[at + len(some) - 1]], decode_blocks(directory, data)

    def _pieces(self, directory: Directory, blocks: Sequence[int]) -> Iterator[memoryview]:
        """Reads `blocks` by one request; yields each. Raises DamagedFileError."""
        lowest, end = directory.bounds(blocks[0])[0], directory.bounds(blocks[-1])[1]
        source = self._source()
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

    def _source(self) -> pa.NativeFile:
        """Returns the file, which is opened by the first call."""
        if self._opened is None:
            opened = self._storage.open_input(self._section.path, self._section.bytes)
            self._opened = self._closed.enter_context(opened)
        return self._opened

    def _directory(self) -> Directory:
        if (known := self._known.directories.get(self._place)) is not None:
            return known
        size, source = self._section.directory_bytes, self._source()
        source.seek(max(0, self._section.bytes - size))
        data = source.read(size)
        directory = decode_directory(data) if fingerprint(data) == self._section.checksum else None
        if directory is None:
            raise self._damaged("its directory is")
        self._known.directories.put(self._place, directory, size)
        return directory

    def _damaged(self, what: str) -> DamagedFileError:
        where = f"{self._storage.location}/{self._section.path}"
        return DamagedFileError(f"The index {where} is damaged: {what} not what was written.", REMADE)
