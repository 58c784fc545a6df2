"""Looks keys up in an index file, by ranged reads: its directory, then the blocks that can have their hashes.

Few keys are looked up one by one, in blocks that a process remembers: a worker that answers them asks the same files
again and again. Many keys are looked up together, in blocks that are read for them and not remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa

from compactor.errors import DamagedFileError
from compactor.index.blocks import (
    ENTRIES,
    FEW,
    Directory,
    Entries,
    Hashes,
    Numbers,
    SearchedEntries,
    Spelled,
    decode_blocks,
    decode_directory,
    every,
    is_intact,
    newest,
    searched,
    searched_block,
    spans,
    spelled,
    spelled_otherwise,
)
from compactor.index.section import IndexSection, fingerprint
from compactor.model.key_hash import hashes_of, log_bits, plain_hashes
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
    "Nothing is lost, looking keys up takes longer. After its next vacuum the worker cleans the partitions of that "
    "file, which writes another one."
)

_DAMAGED: Final = 10_000
"""How many damaged files a process remembers. Of more, those that were met lately are replaced first."""


_BLOCK_BYTES: Final = 72 << 20
"""Bytes of blocks that a process remembers: those of 5 million records. Of more keys, those asked for last."""

_A_PLACE: Final = 1_000
"""What a block or a small file takes in memory next to its bytes: its place, and the views of them."""

_NEIGHBOURS: Final = 16
"""Blocks of a local file that are read at once, 96 KiB, if all of the file can be remembered: to open it takes as long
as to read them, and a worker that is asked for random keys soon has all. Of a larger file they would be forgotten."""

_FILE_BYTES: Final = 64 << 20
"""Bytes of small files that a process remembers: those of 5 million records that came lately."""

SMALL: Final = 1 << 20
"""Bytes of a file that is read as a whole for a few keys: most runs are of records that came lately, and have a file of
some kilobytes, of which each key would take another block. One of this size is read and decoded in 2 ms."""

_JOINED: Final = 4
"""If a file has fewer entries than 4 for each key that is asked for, all of them are read and joined with the keys,
which holds 16 bytes an entry. To search for one key takes 0.3 µs, and a large publish asks for most keys in vain."""

_SPARSE: Final = 8
"""How many bits there are for each entry of such a file: one key of eight is searched for without being there."""


class KnownIndexes:
    """Remembers small index files, and directories and blocks of others, which never change; threads share it."""

    def __init__(self, directory_bytes: int = _REMEMBERED, block_bytes: int = _BLOCK_BYTES) -> None:
        # By location and path.
        self.directories = Remembered[Directory](directory_bytes)
        self.files = Remembered[SearchedEntries](_FILE_BYTES)
        # By location, path, and number.
        self.blocks = Remembered[SearchedEntries](block_bytes)
        self.block_bytes = block_bytes
        # By location and path: the files that were not what was written. A reader that meets one adds it.
        self.damaged = Remembered[str](_DAMAGED)


KNOWN: Final = KnownIndexes()
"""Those that this process has read."""


def damaged_indexes(storage: Storage, paths: Iterable[str]) -> frozenset[str]:
    """Returns those of `paths` that this process has met as damaged."""
    return frozenset(path for path in paths if KNOWN.damaged.get((storage.location, path)) is not None)


class AskedKeys:
    """Keys, as compared, with their hashes: these are made once for all files that have one secret."""

    def __init__(self, keys: pa.Array) -> None:
        self.keys = keys
        # By secret, those that a log with the number 0 has.
        self._hashes: dict[str, Hashes] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def hashes(self, section: IndexSection) -> Hashes:
        """Returns the hash of each key in the file of `section`."""
        return self.plain_hashes(section.secret) ^ np.uint64(log_bits(section.log))

    def plain_hashes(self, secret: str) -> Hashes:
        """Returns the hash of each key in a log with the number 0."""
        known = self._hashes.get(secret)
        if known is None:
            known = self._hashes[secret] = plain_hashes(self.keys, secret)
        return known

    def filter(self, wanted: NDArray[np.bool_]) -> AskedKeys:
        """Returns those of the keys that are `wanted`."""
        some = AskedKeys(self.keys.filter(pa.array(wanted)))
        some._hashes = {secret: hashes[wanted] for secret, hashes in self._hashes.items()}
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


def small_file(storage: Storage, section: IndexSection, known: KnownIndexes = KNOWN) -> SearchedEntries:
    """Returns all entries of a file of at most SMALL bytes, which is read once in a process. Raises as above."""
    entries = known.files.get((storage.location, section.path))
    if entries is not None:
        return entries
    with _SectionReader(storage, section, known) as reader:
        return reader.whole()


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


_DENSE: Final = 4
"""From so many hashes a block on, blocks are decoded together: of fewer, the copies of them take most of the time."""

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

    def whole(self) -> SearchedEntries:
        """Reads all entries by one request, and remembers them."""
        data = memoryview(self._source().read(self._section.bytes))
        directory = self._decoded(bytes(data[-self._section.directory_bytes :]))
        blocks = [data[slice(*directory.bounds(block))] for block in range(directory.blocks)]
        for number, block in enumerate(blocks):
            self._check(directory, number, block)
        return self._known.files.put(self._place, searched(directory, blocks), len(data) + _A_PLACE)

    def newest_of_few(self, hashes: Hashes, start: int, end: int) -> Numbers:
        """Returns what `newest` does, a hash after the other, by files and blocks that are remembered."""
        first = self._section.first
        if end <= first:
            return np.full(len(hashes), NO_OFFSET)
        deltas = (self._newest_delta(hash_, end - first) for hash_ in hashes.tolist())
        offsets = (NO_OFFSET if delta is None else first + delta for delta in deltas)
        return np.array([offset if offset >= start else NO_OFFSET for offset in offsets], np.int64)

    def _newest_delta(self, hash_: int, below: int) -> int | None:
        """Returns the largest delta below `below` of a hash, None if there is none."""
        if self._section.bytes <= SMALL:
            whole = self._known.files.get(self._place) or self.whole()
            return whole.newest(hash_, below)[0]
        directory = self._directory()
        block, delta, may_go_on = directory.last_block_of(hash_), None, True
        while delta is None and may_go_on and block >= 0:
            delta, may_go_on = self._block(directory, block).newest(hash_, below)
            block -= 1
        return delta

    def _block(self, directory: Directory, block: int) -> SearchedEntries:
        """Returns the entries of a block, which are read if they are not remembered, its neighbours along with it."""
        known = self._known.blocks.get((*self._place, block))
        if known is not None:
            return known
        remembered_bytes = self._section.bytes + _A_PLACE * directory.blocks
        is_held = self._storage.is_folder and remembered_bytes <= self._known.block_bytes
        first = block - block % _NEIGHBOURS if is_held else block
        neighbours = range(first, min(first + _NEIGHBOURS, directory.blocks) if is_held else block + 1)
        pieces = dict(zip(neighbours, self._unchecked(directory, neighbours), strict=True))
        self._check(directory, block, pieces[block])
        for number, piece in pieces.items():
            if number == block or is_intact(directory, number, piece):  # a damaged one is told of if it is asked for
                own = memoryview(bytes(piece))  # without its neighbours, which may be forgotten
                entries = self._known.blocks.put(
                    (*self._place, number), searched_block(directory, own), len(own) + _A_PLACE
                )
                known = entries if number == block else known
        assert known is not None, "it is among them"
        return known

    def newest(self, hashes: Hashes, start: int, end: int) -> Numbers:
        """Returns the largest offset in [start, end) of each of `hashes`, or NO_OFFSET."""
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
        """Returns what `_searched` does, by all entries. A hash is not searched for if no entry has its first bits."""
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
        """Returns what `all_offsets` does of the hashes `asked`."""
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
            if self._storage.is_folder and len(blocks) < _DENSE * len(np.unique(blocks)):
                offsets.append(self._every_of_sparse(directory, blocks, owners, hashes, wanted))
                blocks, owners = blocks[:0], owners[:0]
            for places, entries in self._read(directory, blocks, np.argsort(blocks, kind="stable")):
                own = np.unique(owners[places])
                held = every(entries, hashes[own]) if wanted is None else spelled_otherwise(entries, wanted.take(own))
                offsets.append(first + held)
        together = np.unique(np.concatenate(offsets))
        return together[(together >= start) & (together < end)]

    def _every_of_sparse(
        self, directory: Directory, blocks: Numbers, owners: Numbers, hashes: Hashes, wanted: Spelled | None
    ) -> Numbers:
        """Returns the offsets of the hashes of `owners` in `blocks`, a block after the other, without copying any."""
        order = np.argsort(blocks, kind="stable")
        asked = hashes.tolist()
        spellings: list[int | None] = [None] * len(asked)
        if wanted is not None:
            pairs = zip(wanted.spellings.tolist(), wanted.is_spelled.tolist(), strict=True)
            spellings = [spelling if is_spelled else None for spelling, is_spelled in pairs]
        deltas, number, entries = list[int](), -1, SearchedEntries((), ())
        for block, owner in zip(blocks[order].tolist(), owners[order].tolist(), strict=True):
            if block != number:
                begin, end = directory.bounds(block)
                piece = memoryview(self._source().read_at(end - begin, begin))
                self._check(directory, block, piece)
                number, entries = block, searched_block(directory, piece)
            deltas.extend(entries.other_than(asked[owner], spellings[owner]))
        return self._section.first + np.array(deltas, np.int64)

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
        for block, piece in zip(blocks, self._unchecked(directory, blocks), strict=True):
            self._check(directory, block, piece)
            yield piece

    def _unchecked(self, directory: Directory, blocks: Sequence[int]) -> Iterator[memoryview]:
        """Reads `blocks` by one request; yields each, whether it is what was written or not."""
        lowest, end = directory.bounds(blocks[0])[0], directory.bounds(blocks[-1])[1]
        data = memoryview(self._source().read_at(end - lowest, lowest))
        for block in blocks:
            begin, stop = directory.bounds(block)
            yield data[begin - lowest : stop - lowest]

    def _check(self, directory: Directory, block: int, data: memoryview) -> None:
        if not is_intact(directory, block, data):
            raise self._damaged(f"its block {block} is")

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
        return self._known.directories.put(self._place, self._decoded(source.read(size)), size)

    def _decoded(self, data: bytes) -> Directory:
        directory = decode_directory(data) if fingerprint(data) == self._section.checksum else None
        if directory is None:
            raise self._damaged("its directory is")
        return directory

    def _damaged(self, what: str) -> DamagedFileError:
        where = f"{self._storage.location}/{self._section.path}"
        self._known.damaged.put(self._place, what, 1)
        return DamagedFileError(f"The index {where} is damaged: {what} not what was written.", REMADE)
