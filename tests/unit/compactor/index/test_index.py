"""The key index, held against a plain dict."""

from __future__ import annotations

import io
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.errors import DamagedFileError, MissingFileError
from compactor.index import builder, section
from compactor.index.blocks import ENTRIES, FEW, BlocksWriter, Entries, decode_directory, in_order, newest
from compactor.index.builder import IndexBuilder
from compactor.index.reader import (
    NO_OFFSET,
    SMALL,
    AskedKeys,
    KnownIndexes,
    all_offsets,
    newest_offsets,
    small_file,
)
from compactor.index.section import IndexSection
from compactor.index.waiting import WaitingEntries
from compactor.model import record
from compactor.model.key_hash import hash_of
from compactor.model.record import TopicPartition
from compactor.storage.base import Storage
from tests.support.engine import row
from tests.support.memory.storage import MemoryStorage

# More than any index file of these tests has.
FILE_BYTES = 16 << 20
PATH = "runs/1-j-x.index"
KEYS = st.sampled_from([b"", b"a", b"b", b"ab", b"\xff", None])
LOGS = st.dictionaries(st.integers(0, 2), st.lists(KEYS, min_size=1, max_size=40), min_size=1)


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def add(index: IndexBuilder, number: int, keys: Sequence[bytes | None], first: int = 0) -> None:
    """Adds records with `keys` at offsets from `first` on; those without a key are rejected."""
    rows = [
        {**row(number, at, key, b""), "rejected": None if key is not None else "none"}
        for at, key in enumerate(keys, first)
    ]
    index.add(tp(number), pa.RecordBatch.from_pylist(rows, schema=record.RUN))


def offsets_of(
    storage: Storage, of: IndexSection, keys: Sequence[bytes], start: int = -(1 << 62), end: int = 1 << 62
) -> dict[bytes, int]:
    """Looks `keys` up in the section `of`: together, as many, and one by one; the answers have to be the same."""
    known, padded = KnownIndexes(), [*keys, *(b"padding %d" % number for number in range(FEW))]

    def offsets(some: Sequence[bytes]) -> list[int]:
        return newest_offsets(storage, of, AskedKeys(pa.array(some, pa.binary())), start, end, known).tolist()

    together = offsets(padded)[: len(keys)]
    assert [offset for key in keys for offset in offsets([key])] == together
    return {key: offset for key, offset in zip(keys, together, strict=True) if offset != NO_OFFSET}


def newest_of(keys: Sequence[bytes | None], first: int, start: int, end: int) -> Mapping[bytes, int]:
    """What the index has to say: of each key the last offset in [start, end)."""
    return {key: at for at, key in enumerate(keys, first) if key is not None and start <= at < end}


@given(
    LOGS,
    st.integers(-50, 1 << 40),
    st.integers(-5, 45),
    st.integers(-5, 45),
    st.sampled_from([1, 7, builder.HELD]),
    st.booleans(),
)
def test_the_newest_offset_of_a_key_is_the_dicts(
    logs: dict[int, list[bytes | None]], first: int, start: int, end: int, held: int, has_spellings: bool
) -> None:
    """Within any bounds, for several logs in one file, also if entries do not fit into memory."""
    index, storage = IndexBuilder(held, has_spellings=has_spellings), MemoryStorage()
    for number, keys in logs.items():
        add(index, number, keys[: len(keys) // 2] or keys, first)
        if len(keys) > 1:
            add(index, number, keys[len(keys) // 2 :], first + len(keys) // 2)
    sections = index.write(storage, PATH)
    wanted = [b"", b"a", b"b", b"ab", b"\xff", b"absent"]
    for number, keys in logs.items():
        expected = newest_of(keys, first, first + start, first + end)
        assert offsets_of(storage, sections[tp(number)], wanted, first + start, first + end) == expected


def test_a_key_with_more_records_than_a_block_has_entries_is_found_at_every_bound() -> None:
    """The look-up goes back block by block until it is below the bound."""
    index, storage = IndexBuilder(), MemoryStorage()
    keys = [b"hot"] * (3 * ENTRIES + 5) + [b"cold"]
    add(index, 0, keys, 100)
    (of,) = index.write(storage, PATH).values()
    for end in (100, 101, 100 + ENTRIES, 101 + ENTRIES, 100 + 2 * ENTRIES, 100 + 3 * ENTRIES + 5, 1 << 40):
        assert offsets_of(storage, of, [b"hot", b"cold"], end=end) == newest_of(keys, 100, 0, end)


SPELLED = st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([b"", b"x", b"y"]))


@given(
    st.lists(SPELLED, min_size=1, max_size=40),
    st.lists(SPELLED, min_size=1, max_size=6),
    st.sampled_from([1, builder.HELD]),
    st.booleans(),
)
def test_records_that_spell_an_identity_otherwise_are_told(
    kept: list[tuple[bytes, bytes]], asked: list[tuple[bytes, bytes]], held: int, has_spellings: bool
) -> None:
    """Without spellings in the file, or if an identity is asked for with several, all of the identity are told."""
    index, storage = IndexBuilder(held, has_spellings=has_spellings), MemoryStorage()
    rows = [row(0, at, of + by, b"", key_identity=of) for at, (of, by) in enumerate(kept, 5)]
    index.add(tp(0), pa.RecordBatch.from_pylist(rows, schema=record.RUN))
    (of,) = index.write(storage, PATH).values()
    identities, keys = (pa.array(column, pa.binary()) for column in zip(*((a, a + b) for a, b in asked), strict=True))
    offsets = all_offsets(storage, of, AskedKeys(identities), 0, 1_000, KnownIndexes(), other_than=keys)
    spellings = {identity: {by for name, by in asked if name == identity} for identity, _ in asked}
    assert offsets is not None
    assert offsets.tolist() == [
        at
        for at, (name, by) in enumerate(kept, 5)
        if name in spellings and not (has_spellings and spellings[name] == {by})
    ]


def test_many_keys_are_found_with_their_offsets_and_no_others() -> None:
    """Over many blocks, and deltas that need eight bytes."""
    index, storage = IndexBuilder(held=5_000), MemoryStorage()
    keys = [b"key-%d" % n for n in range(20_000)]
    add(index, 0, keys, 7)
    add(index, 0, [b"far"], 7 + (1 << 33))
    (of,) = index.write(storage, PATH).values()
    asked = [*keys[::3], b"far", *(b"no-%d" % n for n in range(1_000))]
    expected = {**{key: 7 + at * 3 for at, key in enumerate(keys[::3])}, b"far": 7 + (1 << 33)}
    assert offsets_of(storage, of, asked) == expected


def test_an_entry_takes_twelve_bytes_and_the_directory_a_fortieth_of_a_byte() -> None:
    """At most 24 bytes a key are allowed; the directory adds 12 bytes for each block of 512."""
    index, storage = IndexBuilder(), MemoryStorage()
    add(index, 0, [b"%d" % n for n in range(51_200)])
    (of,) = index.write(storage, PATH).values()
    assert of.bytes - of.directory_bytes == 51_200 * 12
    assert of.directory_bytes == 20 + 100 * 12
    assert of.bytes == len(storage.read(PATH))


@pytest.mark.parametrize(("far", "entry"), [(0, 20), (1 << 32, 22), ((1 << 48) - 5_121, 22), (1 << 48, 24)])
def test_an_entry_with_a_spelling_takes_22_bytes_in_a_log_of_any_size(far: int, entry: int) -> None:
    """So an index has at most 24 bytes a key with its directory; 2^48 offsets are 100 years of 90,000 a second."""
    index, storage = IndexBuilder(has_spellings=True), MemoryStorage()
    rows = [row(0, at, b"%d" % at, b"", key_identity=b"i%d" % at) for at in range(5_119)]
    index.add(tp(0), pa.RecordBatch.from_pylist([*rows, row(0, far + 5_120, b"far", b"")], schema=record.RUN))
    (of,) = index.write(storage, PATH).values()
    assert of.bytes == 5_120 * entry + 20 + 10 * 12
    assert offsets_of(storage, of, [b"i7", b"i5118", b"far"]) == {b"i7": 7, b"i5118": 5_118, b"far": far + 5_120}


def test_no_key_needs_no_block() -> None:
    """A log of records that were all rejected has a section, in which nothing is found."""
    index, storage = IndexBuilder(), MemoryStorage()
    add(index, 0, [None, None])
    (of,) = index.write(storage, PATH).values()
    assert offsets_of(storage, of, [b"a"]) == {}
    asked = AskedKeys(pa.array([b"a"], pa.binary()))
    offsets = all_offsets(storage, of, asked, 0, 9, KnownIndexes(), other_than=asked.keys)
    assert offsets is not None
    assert not len(offsets)


@pytest.mark.parametrize("byte", [0, 6_143, 6_144, -1, -20])
def test_any_changed_byte_is_noticed(byte: int) -> None:
    """That of a block by its own checksum, that of the directory by the one in the catalog."""
    index, storage = IndexBuilder(), MemoryStorage()
    keys = [b"%d" % n for n in range(ENTRIES + 1)]
    add(index, 0, keys)
    (of,) = index.write(storage, PATH).values()
    data = bytearray(storage.read(PATH))
    data[byte] ^= 1
    storage.write(PATH, bytes(data))
    with pytest.raises(DamagedFileError, match="is damaged"):
        offsets_of(storage, of, keys)


def test_a_lost_index_is_a_missing_file() -> None:
    """So a reader knows to do without it."""
    index = IndexBuilder()
    add(index, 0, [b"a"])
    (of,) = index.write(MemoryStorage(), PATH).values()
    with pytest.raises(MissingFileError):
        offsets_of(MemoryStorage(), of, [b"a"])


def test_a_section_is_the_same_after_it_was_kept_as_text() -> None:
    """A RunFile keeps it in one column."""
    of = IndexSection(path=PATH, bytes=7, directory_bytes=3, checksum="ab", log=2, first=-4)
    assert section.from_text(section.to_text(of)) == of
    assert section.from_text(f"{PATH}:7:3:ab:2:-4") == of, "It was written before files had secrets."


def test_a_key_of_many_blocks_is_looked_up_among_others() -> None:
    """A block that is read for another key has older records of it, and those after it are not read."""
    index, storage = IndexBuilder(), MemoryStorage()
    others = [b"%d" % number for number in range(60)]
    keys = [b"hot"] * (4 * ENTRIES) + others
    add(index, 0, keys)
    (of,) = index.write(storage, PATH).values()
    for end in range(ENTRIES - 70, 4 * ENTRIES, 60):
        assert offsets_of(storage, of, [b"hot", *others], end=end) == {b"hot": end - 1}


def test_the_secret_of_hashes_is_no_known_one() -> None:
    """Nobody can choose keys that have one hash: each process makes a secret for the files that it writes."""
    storage, index = MemoryStorage(), IndexBuilder()
    add(index, 0, [b"a", b"b"])
    of = index.write(storage, PATH)[tp(0)]
    assert offsets_of(storage, of, [b"a", b"b", b"c"]) == {b"a": 0, b"b": 1}
    assert len(of.secret) == 16
    assert hash_of(b"a", of.secret) != hash_of(b"a")
    another = "from compactor.index import builder; print(builder.SECRET)"
    assert (
        subprocess.run([sys.executable, "-c", another], capture_output=True, text=True, check=True).stdout != of.secret
    )


def test_equal_hashes_lie_by_delta_and_the_newest_below_a_bound_is_given() -> None:
    """Different keys can have one hash: the entries lie together."""
    hashes, deltas = np.array([5, 9, 5, 1, 5], np.uint64), np.array([7, 0, 3, 2, 9])
    hashes, deltas, _ = in_order(Entries(hashes, deltas, None))
    assert (hashes.tolist(), deltas.tolist()) == ([1, 5, 5, 5, 9], [2, 3, 7, 9, 0])
    wanted = np.array([5, 1, 2, 9], np.uint64)
    expected = {10: [9, 2, -1, 0], 8: [7, 2, -1, 0], 3: [-1, 2, -1, 0], 2: [-1, -1, -1, 0]}
    assert {
        below: newest(hashes, deltas, wanted, np.zeros(4, np.int64), below)[0].tolist() for below in expected
    } == expected
    assert newest(hashes, deltas, wanted, np.zeros(4, np.int64), 2)[1].tolist() == [False, True, False, False]


def test_blocks_are_full_whatever_pieces_entries_come_in() -> None:
    """Only the last block has fewer entries."""
    writer, blocks = BlocksWriter(0), b""
    for size in (1, ENTRIES, 0, 2 * ENTRIES + 7, 3):
        blocks += writer.add(Entries(np.zeros(size, np.uint64), np.zeros(size, np.int64), None))
    rest, directory = writer.finish()
    decoded = decode_directory(directory)
    assert decoded is not None
    assert (decoded.blocks, decoded.entries) == (4, 3 * ENTRIES + 11)
    assert len(blocks) == 3 * ENTRIES * 12
    assert len(rest) == 11 * 12
    assert decode_directory(directory[:-1]) is None


def test_a_small_file_is_read_once_and_has_the_hashes_of_its_keys() -> None:
    """By one request, whatever is asked of it then; it is held against its checksums."""
    index, storage = IndexBuilder(), CountingStorage()
    keys = [b"%d" % number for number in range(3 * ENTRIES)]
    add(index, 0, keys)
    (of,) = index.write(storage, PATH).values()
    known, asked = KnownIndexes(), AskedKeys(pa.array([keys[7], b"absent"], pa.binary()))
    for _ in range(2):
        entries = small_file(storage, of, known)
        present, absent = (asked.hashes(of)[[place]] for place in (0, 1))
        for many in (1, FEW + 1):
            assert [entries.has_any(np.repeat(hashes, many)) for hashes in (present, absent)] == [True, False]
        assert newest_offsets(storage, of, asked, 0, 9_999, known).tolist() == [7, NO_OFFSET]
    assert storage.reads == [of.bytes]
    for place in (9, of.bytes - 9):
        data = bytearray(storage.read(PATH, FILE_BYTES))
        data[place] ^= 1
        damaged = MemoryStorage()
        damaged.write(PATH, bytes(data))
        with pytest.raises(DamagedFileError):
            small_file(damaged, of, KnownIndexes())


def test_directories_are_remembered_up_to_a_number_of_bytes() -> None:
    """That which was asked for longest ago is forgotten first."""
    known, (a, b, c) = KnownIndexes(20).directories, (("s", name) for name in "abc")
    decoded = decode_directory(BlocksWriter(0).finish()[1])
    assert decoded is not None
    for place in (a, b):
        known.put(place, decoded, 10)
    assert known.get(a) is decoded
    known.put(c, decoded, 10)
    assert (known.get(a), known.get(b), known.get(c)) == (decoded, None, decoded)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1 << 63, (1 << 63) + 1, 5])), max_size=30))
def test_entries_are_put_in_order_whatever_bits_they_differ_in(entries: list[tuple[int, int]]) -> None:
    """Also hashes that only differ in bits that are sorted last, and deltas that do not come in order."""
    deltas, hashes = (list(column) for column in zip(*entries, strict=True)) if entries else ([], [])
    rows = np.arange(len(entries), dtype=np.uint64)  # a spelling of its own for each
    ordered = in_order(Entries(np.array(hashes, np.uint64), np.array(deltas, np.int64), rows))
    expected = sorted(range(len(entries)), key=lambda row: (hashes[row], deltas[row], row))
    assert [column.tolist() for column in ordered if column is not None] == [
        [hashes[row] for row in expected],
        [deltas[row] for row in expected],
        expected,
    ]


@pytest.mark.parametrize("has_spellings", [False, True])
@pytest.mark.parametrize("sizes", [[1], [0, 3, 0, 200_000], [90_000] * 4])
def test_entries_that_wait_on_disk_come_back_by_parts_that_rise(sizes: list[int], has_spellings: bool) -> None:
    """Each once, with its own delta and spelling, whatever pieces they come in."""
    chance, waiting, added = np.random.default_rng(1), WaitingEntries(), []
    with closing(waiting):
        for size in sizes:
            hashes = chance.integers(0, 1 << 64, size, np.uint64)
            added.append(Entries(hashes, np.arange(size), hashes ^ np.uint64(9) if has_spellings else None))
            waiting.add(added[-1])
        parts = list(waiting.parts())
    filled = [part.hashes for part in parts if len(part.hashes)]
    assert all(earlier.max() < later.min() for earlier, later in pairwise(filled))
    for column in range(2 + has_spellings):
        given, expected = (np.concatenate([each[column] for each in some]) for some in (parts, added))
        by_hash = [np.argsort(np.concatenate([each.hashes for each in some])) for some in (parts, added)]
        assert (given[by_hash[0]] == expected[by_hash[1]]).all()


def test_what_is_held_does_not_grow_with_entries() -> None:
    """Those that wait on disk are read in parts; of each part nothing stays but its directory."""
    index, storage, size = IndexBuilder(held=20_000), MemoryStorage(), 100_000
    for at in range(0, 10 * size, size):
        add_many(index, at, size)
    tracemalloc.start()
    (of,) = index.write(storage, PATH).values()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - of.bytes < 4 << 20  # all hashes would be 8 MiB; the file itself is in memory, as the storage is


def add_many(index: IndexBuilder, first: int, size: int) -> None:
    """Adds records with keys of 8 bytes, each another."""
    offsets = np.arange(first, first + size)
    ends = pa.py_buffer(np.arange(0, 8 * size + 8, 8, dtype=np.int32))
    keys = pa.Array.from_buffers(pa.binary(), size, [None, ends, pa.py_buffer(offsets.tobytes())])
    nulls = {"rejected": pa.nulls(size, pa.string()), record.KEY_IDENTITY: pa.nulls(size, pa.binary())}
    index.add(tp(0), pa.RecordBatch.from_pydict({"offset": offsets, "key": keys, **nulls}))


class Counted(io.BytesIO):
    """Counts the reads of an object, each of which is a request."""

    def __init__(self, data: bytes, reads: list[int]) -> None:
        super().__init__(data)
        self._reads = reads

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._reads.append(len(data))
        return data


class CountingStorage(MemoryStorage):
    """`reads` has the bytes of each request for a part of a file."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        return pa.PythonFile(Counted(self.read(path, FILE_BYTES), self.reads), mode="r")


@pytest.mark.parametrize("records", [1_024, 204_800])
def test_the_number_of_requests_does_not_grow_with_the_log(records: int) -> None:
    """A key takes the directory and a block, or the file if it is small, once in a process; many keys take few."""
    index, storage = IndexBuilder(), CountingStorage()
    keys = [b"%d" % n for n in range(records)]
    add(index, 0, keys)
    (of,) = index.write(storage, PATH).values()
    known = KnownIndexes()
    for number in range(3):
        for _ in range(2):
            asked = AskedKeys(pa.array([keys[number]], pa.binary()))
            assert newest_offsets(storage, of, asked, 0, records, known).tolist() == [number]
    once = len(storage.reads)
    if of.bytes <= SMALL:
        assert storage.reads == [of.bytes]
    else:
        assert storage.reads == [of.directory_bytes, *[6_144] * (once - 1)]
        assert 2 <= once <= 4
    newest_offsets(storage, of, AskedKeys(pa.array(keys, pa.binary())), 0, records, known)
    assert len(storage.reads) <= once + 2


class CountingFolder(CountingStorage):
    """The same of a local disk."""

    @property
    def is_folder(self) -> bool:
        return True


def key_of(number: int) -> AskedKeys:
    """Returns the key that `add_many` gives to the record at the offset `number`."""
    return AskedKeys(pa.array([number.to_bytes(8, "little")], pa.binary()))


@pytest.mark.parametrize("block_bytes", [FILE_BYTES, 1 << 20])
def test_of_a_local_file_that_can_be_remembered_sixteen_blocks_are_read_at_once(block_bytes: int) -> None:
    """A damaged one among them is told of to who asks for it; of a larger file each block is read alone."""
    index, storage, known = IndexBuilder(), CountingFolder(), KnownIndexes(block_bytes=block_bytes)
    add_many(index, 0, 16 * 16 * ENTRIES)
    (of,) = index.write(storage, PATH).values()
    data = bytearray(storage.read(PATH, FILE_BYTES))
    data[20 * ENTRIES * 12] ^= 1  # of the block 20
    storage.write(PATH, bytes(data))
    damaged = []
    for number in range(0, 16 * 16 * ENTRIES, 100):
        try:
            assert newest_offsets(storage, of, key_of(number), 0, 1 << 30, known).tolist() == [number]
        except DamagedFileError:
            damaged.append(number)
    assert 1 <= len(damaged) <= 20
    reads = [size for size in storage.reads if size != of.directory_bytes]
    if block_bytes == FILE_BYTES:
        assert set(reads) == {16 * ENTRIES * 12}
        assert len(reads) == 16 + len(damaged)  # the damaged one is read again for each of its keys
    else:
        assert set(reads) == {ENTRIES * 12}
