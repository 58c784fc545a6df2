"""The latest kept record of keys, held against a plain dict."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.errors import DamagedFileError, MissingFileError, UnverifiedError
from compactor.index import section
from compactor.index.builder import IndexBuilder
from compactor.lookup.latest import FOUND_BY, latest_records
from compactor.lookup.records_at import FileOutlines
from compactor.model import record
from compactor.model.log import PartitionLog, Run, RunFile, empty
from compactor.model.record import TopicPartition
from compactor.runs import writer
from compactor.runs.file_stats import level0_run
from compactor.runs.writer import RunTarget
from compactor.storage.base import Storage
from compactor.storage.local import LocalStorage
from tests.support.engine import Row, row
from tests.support.memory.storage import MemoryStorage

ASKED = [b"", b"a", b"b", b"ab", b"c", b"absent"]
KEYS = st.sampled_from([b"", b"a", b"b", b"ab", b"c", None])
RUNS = st.lists(
    st.tuples(st.lists(KEYS, min_size=1, max_size=12), st.sampled_from(["none", "whole", "lost", "damaged"]))
)
Kept = dict[bytes, tuple[int, bytes | None]]


def rows_of(keys: Sequence[bytes | None], first: int, partition: int = 0) -> list[Row]:
    """Records at offsets from `first` on: some are tombstones, some are rejected, as are all without a key."""
    return [
        row(partition, at, key, b"%d" % at if at % 3 else None, rejected="no" if key is None or at % 7 == 6 else None)
        for at, key in enumerate(keys, first)
    ]


def written(storage: Storage, rows: Sequence[Row], *, is_indexed: bool, others: Sequence[Row] = ()) -> Run:
    """Writes `rows` of partition 0 as a run; `others`, of partition 1, go into the same files."""
    target = RunTarget(storage=storage, prefix="1-j", max_bytes=1, is_indexed=is_indexed)
    half = len(rows) // 2 or len(rows)
    pieces = [[*rows[:half], *others], rows[half:]]
    batches = [pa.RecordBatch.from_pylist(list(piece), record.RUN) for piece in pieces if piece]
    stats = [part for part in writer.write(batches, target, "ingest.write") if part.partition == 0]
    return level0_run(rows[0]["offset"], rows[-1]["offset"] + 1, sorted(stats, key=lambda part: part.file.first), 0)


def log_of(runs: Sequence[Run], start: int = 0) -> PartitionLog:
    end = runs[-1].end if runs else 0
    return replace(empty(TopicPartition("t", 0), 0, 0, None), start=start, end=end, runs=tuple(runs))


def spoil(storage: MemoryStorage, run: Run, how: str) -> None:
    """Removes or damages the index of `run`."""
    (path,) = {file.index_path for file in run.files}
    assert path is not None
    if how == "lost":
        storage.delete(path)
    elif how == "damaged":
        data = bytearray(storage.read(path))
        data[len(data) // 2] ^= 1
        storage.write(path, bytes(data))


def kept(storage: Any, log: PartitionLog, keys: Sequence[bytes] = tuple(ASKED)) -> Kept:
    rows = latest_records(storage, log, pa.array(keys, pa.binary())).to_pylist()
    assert len({each["offset"] for each in rows}) == len(rows)
    return {each["key"]: (each["offset"], each["value"]) for each in rows}


@given(RUNS, st.integers(0, 30))
def test_the_latest_record_of_a_key_is_the_dicts(runs: list[tuple[list[bytes | None], str]], start: int) -> None:
    """With an index and without, if it is lost or damaged, above a log's start, in files that partitions share."""
    storage, made, end, expected = MemoryStorage(), list[Run](), 0, Kept()
    for keys, how in runs:
        rows = rows_of(keys, end)
        run = written(storage, rows, is_indexed=how != "none", others=rows_of(ASKED, 0, partition=1))
        if how in ("lost", "damaged"):
            spoil(storage, run, how)
        made.append(run)
        keyed = [each for each in rows if each["rejected"] is None and each["offset"] >= start]
        expected |= {each["key"]: (each["offset"], each["value"]) for each in keyed}
        end = run.end
    log = log_of(made, start)
    assert kept(storage, log) == expected


def test_a_run_that_was_cut_has_only_what_is_left_of_it() -> None:
    """A clean leaves the upper part of a run across its end: the index still has what lies below."""
    storage = MemoryStorage()
    run = written(storage, rows_of([b"a", b"b", b"a", b"b"], 0), is_indexed=True)
    assert kept(storage, log_of([replace(run, start=3)])) == {b"b": (3, None)}
    assert kept(storage, log_of([replace(run, end=2)])) == {b"a": (0, None), b"b": (1, b"1")}


def test_two_keys_with_one_hash_are_told_apart() -> None:
    """The index says that the record at 1 has the hash of `a`; its key is another, and that of `a` lies below."""
    storage = MemoryStorage()
    run = written(storage, rows_of([b"a", b"other"], 0), is_indexed=False)
    index = IndexBuilder()
    index.add(TopicPartition("t", 0), pa.RecordBatch.from_pylist(rows_of([b"a", b"a"], 0), record.RUN))
    (of,) = index.write(storage, "runs/1-j-x.index").values()
    files = tuple(replace(file, index=section.to_text(of)) for file in run.files)
    assert kept(storage, log_of([replace(run, files=files)]), [b"a"]) == {b"a": (0, None)}


def test_keys_that_have_an_identity_are_looked_up_by_it() -> None:
    """The record has the key as it came."""
    storage = MemoryStorage()
    rows = [{**each, record.KEY_IDENTITY: b"same"} for each in rows_of([b"a", b"A"], 1)]
    log = log_of([written(storage, rows, is_indexed=True)])
    assert kept(storage, log, [b"a"]) == {}
    assert kept(storage, log, [b"same"]) == {b"A": (2, b"2")}


def test_a_lost_file_of_records_is_an_error() -> None:
    """The caller has an old state of the catalog, and reads it again."""
    storage = MemoryStorage()
    run = written(storage, rows_of([b"a"], 0), is_indexed=True)
    storage.delete(run.files[0].path)
    with pytest.raises(MissingFileError):
        kept(storage, log_of([run]), [b"a"])


def test_a_look_up_of_an_absent_key_reads_no_records() -> None:
    """The index alone says that no record has it."""
    storage = MemoryStorage()
    run = written(storage, rows_of([b"a", b"b"], 0), is_indexed=True)
    for file in run.files:
        storage.delete(file.path)
    assert kept(storage, log_of([run]), [b"absent", b"c"]) == {}


def test_what_the_files_of_a_log_are_includes_its_indexes() -> None:
    """So no vacuum removes them while a log names them."""
    storage = MemoryStorage()
    log = log_of([written(storage, rows_of([b"a", b"b"], 0), is_indexed=True)])
    assert log.paths == {info.path for info in storage.walk("runs")}


def test_a_record_is_read_out_of_a_small_row_group(tmp_path: Path) -> None:
    """On a local disk the row groups of an indexed file have 256 KiB, so a look-up decodes little; all are found."""
    storage = LocalStorage(str(tmp_path))
    rows = [row(0, at, b"%d" % at, bytes(1 << 14)) for at in range(300)]
    target = RunTarget(storage=storage, prefix="1-j", max_bytes=1 << 27, is_indexed=True)
    (part,) = writer.write([pa.RecordBatch.from_pylist(rows, record.RUN)], target, "ingest.write")
    outline = FileOutlines().of(storage, part.file)
    assert len(outline.groups) == 20
    assert [group for group, _ in outline.groups_at(part.tp, np.array([0, 299]))] == [0, 19]
    log = log_of([level0_run(0, 300, [part], 0)])
    asked = [b"0", b"63", b"64", b"299"]
    assert {key: offset for key, (offset, _) in kept(storage, log, asked).items()} == {key: int(key) for key in asked}


def test_outlines_are_remembered_up_to_a_number_of_bytes(tmp_path: Path) -> None:
    """That of the file that was asked for longest ago is forgotten first."""
    storage, outlines = LocalStorage(str(tmp_path)), FileOutlines(1)
    target = RunTarget(storage=storage, prefix="1-j", max_bytes=1)
    batches = [pa.RecordBatch.from_pylist([row(0, at, b"k", b"")], record.RUN) for at in range(2)]
    first, second = (next(iter(writer.write([batch], target, "ingest.write"))).file for batch in batches)
    known = outlines.of(storage, first)
    assert outlines.of(storage, first) is known
    outlines.of(storage, second)
    assert outlines.of(storage, first) is not known


def test_a_row_group_that_was_read_is_not_read_again(tmp_path: Path) -> None:
    """Up to a number of bytes: what is asked for again is answered without its file, another key's is not."""
    storage = LocalStorage(str(tmp_path))
    rows = [row(0, at, b"%d" % at, random.Random(at).randbytes(1 << 14)) for at in range(300)]
    target = RunTarget(storage=storage, prefix="1-j", max_bytes=1 << 27, is_indexed=True)
    (part,) = writer.write([pa.RecordBatch.from_pylist(rows, record.RUN)], target, "ingest.write")
    log, outlines = log_of([level0_run(0, 300, [part], 0)]), FileOutlines(group_bytes=3 << 20)

    def value(key: bytes) -> bytes:
        (kept,) = latest_records(storage, log, pa.array([key], pa.binary()), outlines).to_pylist()
        return bytes(kept["value"])

    first, last = value(b"0"), value(b"299")
    (tmp_path / part.file.path).unlink()
    assert (value(b"0"), value(b"299"), value(b"1")) == (first, last, rows[1]["value"])
    with pytest.raises(MissingFileError):
        value(b"150")


def test_row_groups_are_remembered_with_the_columns_that_were_read(tmp_path: Path) -> None:
    """Who asks for others of the same row group has these, too."""
    storage, outlines = LocalStorage(str(tmp_path)), FileOutlines(group_bytes=3 << 20)
    log = log_of([written(storage, rows_of([b"a"], 1), is_indexed=True)])
    asked = pa.array([b"a"], pa.binary())
    few, every = (latest_records(storage, log, asked, outlines, columns=names) for names in (FOUND_BY, None))
    assert (few.schema.names, few.to_pylist()) == ([*FOUND_BY], every.select([*FOUND_BY]).to_pylist())
    assert every["value"].to_pylist() == [b"1"]


def test_blank_columns_are_not_read(tmp_path: Path) -> None:
    """The footer says which they are in a row group; the record is what was written all the same."""
    storage, keys = LocalStorage(str(tmp_path)), [b"plain", b"with all"]
    more: list[dict[str, Any]] = [{"headers": []}, {"headers": [{"key": "h", "value": None}], "delete_horizon": 5}]
    runs = [written(storage, [row(0, at, key, b"v", **more[at])], is_indexed=True) for at, key in enumerate(keys)]
    outlines = FileOutlines()
    blanks = [
        {*record.RUN.names}.difference(outlines.of(storage, run.files[0]).columns_of(0, record.RUN.names))
        for run in runs
    ]
    assert blanks[0] - blanks[1] == {"headers", "delete_horizon"}
    assert {"key_identity", "rejected"} < blanks[1]
    for key, expected in zip(keys, more, strict=True):
        (kept,) = latest_records(storage, log_of(runs), pa.array([key], pa.binary()), outlines).to_pylist()
        assert kept == {**dict.fromkeys(record.RUN.names), **row(0, keys.index(key), key, b"v", **expected)}


def test_records_of_many_keys_do_not_keep_their_row_groups_in_memory(tmp_path: Path) -> None:
    """What is held of 100 row groups of 256 KiB are the 100 records that are asked for, and some row groups."""
    storage, size = LocalStorage(str(tmp_path)), 1_000
    rows = pa.table(
        {
            **{field.name: pa.nulls(100 * size, field.type) for field in record.RUN},
            "topic": pa.repeat("t", 100 * size),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), 100 * size),
            "offset": pa.array(range(100 * size)),
            "timestamp": pa.array(range(100 * size)),
            "timestamp_type": pa.repeat(pa.scalar(0, pa.int32()), 100 * size),
            "key": pa.array([b"%d" % at for at in range(100 * size)]),
            "value": pa.repeat(bytes(200), 100 * size),
        }
    ).cast(record.RUN)
    target = RunTarget(storage=storage, prefix="1-j", max_bytes=1 << 30, is_indexed=True)
    (part,) = writer.write(rows.to_batches(size), target, "clean.write")
    log, before = log_of([level0_run(0, 100 * size, [part], 0)]), pa.total_allocated_bytes()
    asked = pa.array([b"%d" % at for at in range(0, 100 * size, size)], pa.binary())
    records = latest_records(storage, log, asked, FileOutlines())
    assert records.num_rows == 100
    assert pa.total_allocated_bytes() - before < 1 << 20


@pytest.mark.parametrize("at_once", [1, 12])
def test_each_row_group_of_partitions_that_take_turns_in_a_file_is_read(at_once: int) -> None:
    """Those of one partition lie between those of others; small ones are shared."""
    sizes = [(0, 5), (1, 5), (0, 5), (2, 1), (1, 5), (3, 1), (0, 5)]
    ends, rows, storage = dict.fromkeys(range(4), 0), list[list[Row]](), MemoryStorage()
    for partition, size in sizes:
        value = bytes(4 << 20 if size > 1 else 1)  # of five records, a row group
        first = ends[partition]
        rows.append([row(partition, at, b"%d" % at, value) for at in range(first, first + size)])
        ends[partition] += size
    target = RunTarget(storage=storage, prefix="1-j", max_bytes=1 << 30, is_indexed=True)
    batches = (pa.RecordBatch.from_pylist(some, record.RUN) for some in rows)
    parts = {part.partition: part for part in writer.write(batches, target, "ingest.write")}
    for partition, end in ends.items():
        begun = empty(TopicPartition("t", partition), 0, 0, None)
        log = replace(begun, end=end, runs=(level0_run(0, end, [parts[partition]], 0),))
        keys = [b"%d" % at for at in range(end)]
        for at in range(0, end, at_once):
            some = keys[at : at + at_once]
            assert {key: offset for key, (offset, _) in kept(storage, log, some).items()} == {
                key: int(key) for key in some
            }


class Opened(MemoryStorage):
    """A store that says which files were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        self.opened.append(path)
        return super().open_input(path, size)


class Reads(LocalStorage):
    """The same folder as another storage; it counts how often files are opened."""

    def __init__(self, of: LocalStorage) -> None:
        super().__init__(of.location)
        self.count = 0

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        self.count += path.endswith(".parquet")
        return super().open_input(path, size)


def file_of(storage: MemoryStorage, key: bytes) -> RunFile:
    """Writes a run with one record in one file, of which the row group has no checksum."""
    (file,) = written(storage, [row(0, 7_000_001, key, b"v")], is_indexed=False).files
    return file


def test_a_file_whose_footer_was_forgotten_is_not_verified_again() -> None:
    """Its footer is read alone, however many files are looked up in turn: a log is held against checksums once."""
    storage, outlines = Opened(), FileOutlines(1, verifies=True)
    files = [file_of(storage, key) for key in (b"a", b"b", b"c")]
    for file in files:
        outlines.of(storage, file)
        assert storage.opened.count(file.path) == 2  # as a whole, and its footer
    storage.opened.clear()
    for file in files:
        outlines.of(storage, file)
    assert storage.opened == [file.path for file in files]


def test_a_file_of_the_same_name_with_other_bytes_is_verified() -> None:
    """As one that a connector has written that was made anew at the same place."""
    storage, outlines = MemoryStorage(), FileOutlines(1, verifies=True)
    file = file_of(storage, b"d")
    outlines.of(storage, file)
    outlines.of(storage, file_of(storage, b"e"))
    with pytest.raises(DamagedFileError, match="is not what was written"):
        outlines.of(storage, replace(file, sha256="0" * 64))


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_look_up_verifies_a_number_of_bytes_and_the_next_goes_on(at_once: int) -> None:
    """One file at least, however large it is. What was verified before does not count."""
    storage, outlines = MemoryStorage(), FileOutlines(verifies=True)
    files = [file_of(storage, b"%d of %d" % (number, at_once)) for number in range(5)]
    most_bytes = sum(file.file_bytes for file in files[:2]) if at_once == 2 else 0
    for verified in range(at_once, len(files), at_once):
        look_up = outlines.verifying_at_most(most_bytes)
        for file in files[:verified]:
            look_up.of(storage, file)
        with pytest.raises(UnverifiedError, match=r"bytes of them were now held .* Ask again"):
            look_up.of(storage, files[verified])


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_worker_decodes_nothing_of_a_file_that_is_not_what_was_written(is_indexed: bool) -> None:
    """A damaged page may end its process: its row group, or the file, is held against its checksum before."""
    storage = MemoryStorage()
    run = written(storage, rows_of([b"a"], 0), is_indexed=is_indexed)
    damage(storage, run.files[0].path, 10)
    with pytest.raises(DamagedFileError, match="not what was written"):
        latest_records(storage, log_of([run]), pa.array([b"a"], pa.binary()), FileOutlines(verifies=True))


def damage(storage: Storage, path: str, at: int) -> None:
    """Changes a bit of the byte `at` of a file."""
    data = bytearray(storage.read(path, 1 << 30))
    data[at] ^= 1
    storage.write(path, bytes(data))


def test_of_an_indexed_file_what_is_decoded_is_verified_and_no_more(tmp_path: Path) -> None:
    """However large it is, a key costs the check of its row group, whatever byte of that is damaged; once a process."""
    storage = LocalStorage(str(tmp_path))
    rows = [row(0, at, b"%d" % at, random.Random(at).randbytes(1 << 14)) for at in range(100)]
    target = RunTarget(storage=storage, prefix="1-j", max_bytes=1 << 27, is_indexed=True)
    (part,) = writer.write([pa.RecordBatch.from_pylist(rows, record.RUN)], target, "ingest.write")
    log, first, last = log_of([level0_run(0, 100, [part], 0)]), *(pa.array([key], pa.binary()) for key in (b"0", b"99"))
    notes = FileOutlines().of(storage, part.file).notes
    assert notes is not None
    for at in (notes[0].first, (notes[0].first + notes[0].end) // 2, notes[0].end - 1):
        outlines = FileOutlines(verifies=True)
        damage(storage, part.file.path, at)
        assert latest_records(storage, log, last, outlines)["offset"].to_pylist() == [99]
        with pytest.raises(DamagedFileError, match=r"its bytes 4 to .* are not what was written"):
            latest_records(storage, log, first, outlines)
        damage(storage, part.file.path, at)
        assert latest_records(storage, log, first, outlines)["offset"].to_pylist() == [0]
    assert [held.end for held in notes[:-1]] == [held.first for held in notes[1:]]
    opened = Reads(storage)
    for asked in (last, first, last):
        latest_records(opened, log, asked, outlines)
    assert opened.count == 3  # each is decoded, and not verified again
