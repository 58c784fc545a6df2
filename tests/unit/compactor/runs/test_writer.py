from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from compactor.errors import FailpointError, FoldError, MissingFileError
from compactor.failpoints import VARIABLE
from compactor.index import section
from compactor.model import record
from compactor.model.log import PartitionLog, Run, empty
from compactor.model.record import TopicPartition
from compactor.publish.publishable import YoungRecords, first_young
from compactor.quarantine import verify
from compactor.runs import file_stats, paths, reader, writer
from compactor.runs.scan import FileRange, OffsetRange, between
from compactor.runs.writer import RunTarget
from compactor.storage.base import Storage
from compactor.storage.local import LocalStorage
from tests.support.engine import Row, row
from tests.support.memory.storage import MemoryStorage

MIB = 1 << 20


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=record.RUN)


def target(storage: Storage, max_bytes: int = 1 << 27, held_bytes: int = 1 << 27) -> RunTarget:
    return RunTarget(storage=storage, prefix="1-j", max_bytes=max_bytes, held_bytes=held_bytes)


def log_with(storage: MemoryStorage, *runs: Sequence[Row], arrived: Sequence[int] = ()) -> PartitionLog:
    """The log of partition 0 with one level-0 run for each of `runs`."""
    log = empty(record.TopicPartition("t", 0), 0, 0, None)
    for number, rows in enumerate(runs):
        (part,) = writer.write([batch(rows)], target(storage), "ingest.write")
        end = rows[-1]["offset"] + 1
        run = Run(
            start=log.end, end=end, level=0, files=(part.file,), records=len(rows), bytes=1,
            max_timestamp=part.max_timestamp, arrived_ms=arrived[number] if arrived else 1 << 60,
        )  # fmt: skip
        log = replace(log, end=end, runs=(*log.runs, run))
    return log


def test_a_full_buffer_becomes_a_row_group_and_a_full_file_is_rolled() -> None:
    """Row groups have about 16 MiB, files about max_bytes; offsets rise from file to file."""
    storage = MemoryStorage()
    rng = random.Random(1)
    rows = [batch([row(0, n, b"%d" % n, rng.randbytes(MIB))]) for n in range(40)]
    found = list(writer.write(rows, target(storage, 20 * MIB), "ingest.write"))
    assert [part.file.records for part in found] == [32, 8]
    assert [part.file.first for part in found] == [0, 32]
    groups = pq.ParquetFile(storage.open_input(found[0].file.path)).metadata
    assert [groups.row_group(one).num_rows for one in range(groups.num_row_groups)] == [16, 16]


def test_a_task_holds_a_bounded_number_of_bytes() -> None:
    """However many partitions a task reads, its largest buffer is written before too much is held."""
    held: list[int] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for n in range(30):
            yield batch([row(n % 10, n, b"k", b"v" * (MIB // 2))])
            held.append(opened.held)

    with writer.RunWriter(target(MemoryStorage(), held_bytes=4 * MIB), "ingest.write") as opened:
        for one in rows():
            list(opened.add(one))
        assert sum(part.file.records for part in opened.finish()) == 30
    assert max(held) <= 4 * MIB


def groups_of(storage: MemoryStorage, path: str) -> list[tuple[TopicPartition, TopicPartition]]:
    metadata = pq.ParquetFile(storage.open_input(path)).metadata
    found = [reader.bounds_of(metadata.row_group(number)) for number in range(metadata.num_row_groups)]
    return [(one.least, one.most) for one in found]


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def test_small_neighbours_share_a_row_group() -> None:
    """Up to a megabyte together, of one topic, and never across a partition that has much."""
    storage = MemoryStorage()
    rows = [row(p, 0, b"k", b"v" * 100) for p in (0, 1, 3, 4)]
    rows.append(row(2, 0, b"k", b"v" * writer.SHARED_BYTES))
    rows += [row(p, 0, b"k", b"v", topic="u") for p in (0, 1)]
    rows += [row(p, 0, b"k", b"v" * (writer.SHARED_BYTES - 1_000), topic="w") for p in range(20)]
    parts_ = list(writer.write([batch(rows)], target(storage), "ingest.write"))
    assert [(part.tp, part.file.first, part.file.records) for part in sorted(parts_, key=lambda one: one.tp)] == [
        *((tp(p), 0, 1) for p in range(5)),
        *((tp(p, "u"), 0, 1) for p in (0, 1)),
        *((tp(p, "w"), 0, 1) for p in range(20)),
    ]
    assert groups_of(storage, parts_[0].file.path) == [
        *((tp(first), tp(last)) for first, last in ((0, 1), (2, 2), (3, 4))),
        (tp(0, "u"), tp(1, "u")),
        *((tp(first, "w"), tp(last, "w")) for first, last in ((0, 15), (16, 19))),
    ]


def test_what_is_flushed_early_stays_apart() -> None:
    """A partition that has row groups in the file already parts its neighbours, though nothing of it waits."""
    storage = MemoryStorage()
    much = [batch([row(1, n, b"k", b"v" * 17 * MIB)]) for n in range(2)]
    found = list(writer.write([*much, batch([row(0, 0, b"k", b"v"), row(2, 0, b"k", b"v")])], target(storage), "x"))
    assert groups_of(storage, found[0].file.path) == [(tp(p), tp(p)) for p in (1, 1, 0, 2)]


def test_many_small_partitions_are_flushed_together() -> None:
    """Where a task holds too much, and has little of each partition, it does not write a row group of each."""
    storage = MemoryStorage()
    rows = [[row(p, n, b"k", b"v" * 9_000) for p in range(100)] for n in range(4)]
    found = list(writer.write(map(batch, rows), target(storage, held_bytes=MIB), "x"))
    assert {(part.file.records, part.file.first, part.file.last) for part in found} == {(4, 0, 3)}
    assert len(groups_of(storage, found[0].file.path)) == 2 * 7


class Spread(NamedTuple):
    """What one file holds: the partitions of each row group, by number."""

    path: str
    groups: list[set[int]]


def spread(storage: MemoryStorage, path: str) -> Spread:
    file = pq.ParquetFile(storage.open_input(path))
    read = (file.read_row_group(number, columns=["partition"]) for number in range(file.num_row_groups))
    return Spread(path, [set(rows["partition"].to_pylist()) for rows in read])


@pytest.mark.parametrize("max_bytes", [1 << 27, 20_000])
def test_no_row_group_lies_around_another_partition_of_its_file(max_bytes: int) -> None:
    """However often a task has to write before it knows which partitions still come."""
    storage = MemoryStorage()
    order = [0, 9, 19, 4, 0, 12, 1, 18, 7, 9, 2, 11, 19, 5, 16, 3, 8, 14, 6, 10, 13, 15, 17, 0]
    rows = [batch([row(p, n, b"k", random.Random(n).randbytes(9_000))]) for n, p in enumerate(order)]
    found = list(writer.write(rows, target(storage, max_bytes, 60_000), "x"))
    assert sum(part.file.records for part in found) == len(order)
    for file in (spread(storage, path) for path in {part.file.path for part in found}):
        held = set().union(*file.groups)
        assert [held & set(range(min(one), max(one) + 1)) for one in file.groups] == file.groups
    assert any(len(one) > 1 for path in {part.file.path for part in found} for one in spread(storage, path).groups)


def test_a_damaged_page_concerns_no_more_than_share_its_row_group(tmp_path: Path) -> None:
    """Of twenty small partitions whose task had to write two of them early, those two, whose page it is."""
    storage = LocalStorage(str(tmp_path))
    order = [0, 19, *range(1, 19)]
    rows = [batch([row(p, 0, b"k", b"%d" % p + b"v" * (12_000 if p in (0, 19) else 900))]) for p in order]
    found = list(writer.write(rows, target(storage, held_bytes=18_000), "x"))
    flipped = bytearray(storage.read(found[0].file.path))
    flipped[200] ^= 0xFF  # in the values of the first row group
    storage.write(found[0].file.path, bytes(flipped))
    runs = [Run(start=0, end=1, level=0, files=(part.file,), records=1, bytes=part.file.bytes) for part in found]
    ranges = [OffsetRange(tp=part.tp, start=0, end=1, runs=(run,)) for part, run in zip(found, runs, strict=True)]
    damaged = [one.tp.partition for one, why in zip(ranges, verify.find_damage(storage, ranges), strict=True) if why]
    assert damaged == [0, 19]


def test_a_file_is_ended_only_where_a_row_group_would_lie_around_a_partition() -> None:
    """Partitions that come again and again, as in a backlog, share the row groups of one file."""
    storage = MemoryStorage()
    rows = [batch([row(p, n, b"k", b"v" * 9_000) for p in range(20)]) for n in range(12)]
    found = list(writer.write(rows, target(storage, held_bytes=200_000), "x"))
    assert len(found) == 20
    assert len(spread(storage, found[0].file.path).groups) == 12


def test_few_partitions_share_a_row_group() -> None:
    """However little there is of each: so many at most are set aside for one damaged page."""
    storage = MemoryStorage()
    found = list(writer.write([batch([row(p, 0, b"k", b"v") for p in range(40)])], target(storage), "x"))
    (file,) = {part.file.path for part in found}
    assert [len(one) for one in spread(storage, file).groups] == [16, 16, 8]


def test_a_small_slice_does_not_keep_a_large_batch() -> None:
    """What waits takes its own bytes, not those of the rows that it was cut from."""
    large = batch([row(0, 0, b"k", b"v" * 8 * MIB), row(1, 0, b"k", b"v")])
    writing = writer.RunWriter(target(MemoryStorage()), "x")
    assert list(writing.add(large)) == []
    (waits,) = writing._buffers[tp(1)].batches
    assert waits.get_total_buffer_size() < MIB
    assert waits.to_pylist() == large.slice(1).to_pylist()


@pytest.mark.parametrize("partition", [0, 1, 2])
def test_a_shared_row_group_is_read_by_partition(partition: int) -> None:
    """Rows of the neighbours are left out, whatever columns are asked for."""
    storage = MemoryStorage()
    rows = [row(p, n, b"%d" % p, b"v%d" % n) for p in range(3) for n in range(4)]
    found = {part.partition: part.file for part in writer.write([batch(rows)], target(storage), "x")}
    extent = FileRange(tp=tp(partition), file=found[partition], start=1, end=3)
    got = [one for rows in reader.read_file_range(storage, extent, ["key", "value"]) for one in rows.to_pylist()]
    assert got == [{"key": b"%d" % partition, "value": b"v%d" % n} for n in (1, 2)]


def test_a_batch_is_split_by_partition_in_offset_order() -> None:
    """Records that come mixed, as polls return them, are told apart without losing their order."""
    mixed = batch([row(n % 3, n, b"k", b"v") for n in range(9)])
    split = [(tp.partition, rows["offset"].to_pylist()) for tp, rows in record.split_by_partition(mixed)]
    assert split == [(0, [0, 3, 6]), (1, [1, 4, 7]), (2, [2, 5, 8])]


def test_offsets_that_do_not_rise_are_refused() -> None:
    """A run never says that its offsets rise where they do not; the file is gone."""
    storage = MemoryStorage()
    with pytest.raises(FoldError):
        list(writer.write([batch([row(0, 2, b"k", b"v"), row(0, 1, b"k", b"v")])], target(storage), "ingest.write"))
    assert storage.walk("") == []


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    """Where reading fails in the middle, no file is left, not even a temporary one."""

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch([row(0, 1, b"k", b"v" * 17 * MIB)])
        raise FoldError("no more")

    storage = LocalStorage(str(tmp_path))
    with pytest.raises(FoldError, match="no more"):
        list(writer.write(failing(), RunTarget(storage=storage, prefix="p", max_bytes=1 << 30), "ingest.write"))
    assert storage.walk("") == []
    assert storage.unfinished("") == []


def test_each_file_has_a_failpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete file that nothing names yet is a place where a test can make the step fail."""
    monkeypatch.setenv(VARIABLE, "ingest.write=error")
    storage = MemoryStorage()
    with pytest.raises(FailpointError):
        list(writer.write([batch([row(0, 1, b"k", b"v")])], target(storage), "ingest.write"))
    assert len(storage.walk("")) == 1


def test_a_part_counts_what_decisions_need() -> None:
    """Tombstones, rejected records, horizons and times of both row groups of a file add up; it survives its row."""
    rows = [
        row(0, 1, b"a", None, delete_horizon=70, timestamp=5),
        row(0, 3, None, None, rejected="null key"),
        row(0, 4, b"b", None),
    ]
    more = [row(0, 9, b"c", b"v", timestamp=90), row(0, 11, b"d", None, delete_horizon=60)]
    big = row(0, 5, b"x", b"v" * 17 * MIB)
    (part,) = writer.write([batch(rows), batch([big]), batch(more)], target(MemoryStorage()), "ingest.write")
    assert (part.tombstones, part.rejected, part.horizons, part.next_horizon_ms) == (3, 1, 2, 60)
    assert (part.first_rejected_offset, part.first_rejected_reason) == (3, "null key")
    assert (part.file.first, part.file.last, part.file.records, part.max_timestamp) == (1, 11, 6, 90)
    assert [file_stats.from_row(one) for one in file_stats.to_batch([part]).to_pylist()] == [part]


@pytest.mark.parametrize(("start", "end"), [(0, 30), (7, 22), (15, 16), (10, 20), (29, 30), (5, 5)])
def test_a_slice_is_read_by_offset_and_nothing_beside(start: int, end: int) -> None:
    """Reading gives the offsets [start, end) of one partition, whatever else the files hold."""
    storage = MemoryStorage()
    runs = [[row(p, n, b"%d" % p, b"v") for p in (0, 1) for n in range(lo, lo + 10)] for lo in (0, 10, 20)]
    log = empty(record.TopicPartition("t", 1), 0, 0, None)
    for number, rows in enumerate(runs):
        file = next(one.file for one in writer.write([batch(rows)], target(storage), "ingest.write") if one.partition)
        run = Run(start=number * 10, end=number * 10 + 10, level=0, files=(file,), records=10, bytes=1)
        log = replace(log, end=run.end, runs=(*log.runs, run))
    got = list(reader.read(storage, between(log, start, end), ("offset", "key")))
    assert [n for one in got for n in one["offset"].to_pylist()] == list(range(start, end))
    assert {key for one in got for key in one["key"].to_pylist()} <= {b"1"}


@pytest.mark.parametrize(
    ("from_offset", "newest_ms", "expected"),
    [(0, 4, 5), (6, 4, 6), (0, 9, 10), (0, 11, 12), (13, 11, 13), (14, 39, 14), (14, 40, None), (0, 60, None)],
)
def test_the_first_young_record_is_found_by_record(from_offset: int, newest_ms: int, expected: int | None) -> None:
    """The first offset from where we look whose record is younger; a stamp in the future counts from its arrival."""
    storage = MemoryStorage()
    first = [row(0, n, b"k", b"v") for n in range(10)]
    second = [row(0, n, b"k", b"v", timestamp=10**6 if n == 12 else n) for n in range(10, 14)]
    third = [row(0, 14, b"k", b"v", timestamp=10**6)]
    log = log_with(storage, first, second, third, arrived=(20, 60, 40))
    assert first_young(storage, log, from_offset, newest_ms) == expected


def test_old_runs_are_not_opened() -> None:
    """Run metadata says where no young record can be: such files are not touched."""
    storage = MemoryStorage()
    log = log_with(storage, [row(0, 0, b"k", b"v", timestamp=10**9)], [row(0, 1, b"k", b"v")], arrived=(5, 10))
    for info in storage.walk(""):
        storage.delete(info.path)
    assert first_young(storage, log, 0, 5) is None


@pytest.mark.parametrize(
    ("from_offset", "newest_ms", "expected"),
    [(0, 15, 2), (0, 19, 2), (1, 19, 2), (2, 15, 2), (0, 20, None), (3, 19, None), (0, 14, None)],
)
def test_the_first_young_record_is_remembered_while_it_is_young(
    from_offset: int, newest_ms: int, expected: int | None
) -> None:
    """An idle log is read again (None) once that record is old, or folded, or the clock was set back; not before."""
    storage = MemoryStorage()
    log = log_with(storage, [row(0, n, b"k", b"v", timestamp=10 * n) for n in range(5)], arrived=(100,))
    young = YoungRecords(storage)
    assert young.first(log, 0, 15) == first_young(storage, log, 0, 15) == 2
    for info in storage.walk(""):
        storage.delete(info.path)
    if expected is not None:
        assert young.first(log, from_offset, newest_ms) == expected
        return
    with pytest.raises(MissingFileError):
        young.first(log, from_offset, newest_ms)


def test_a_record_stamped_in_the_future_is_remembered_until_it_is_as_old_as_its_arrival() -> None:
    """It ages from its arrival, so it is young no longer than that."""
    storage = MemoryStorage()
    log = log_with(storage, [row(0, 0, b"k", b"v", timestamp=1000)], arrived=(50,))
    young = YoungRecords(storage)
    assert [young.first(log, 0, newest_ms) for newest_ms in (10, 49, 50)] == [0, 0, None]


def test_an_index_is_written_once_for_all_files_of_a_writer() -> None:
    """Statistics come when it is complete, and each names the section of its partition."""
    storage = MemoryStorage()
    named = RunTarget(storage=storage, prefix="1-j", max_bytes=1, is_indexed=True)
    rows = [[row(0, 1, b"a", b""), row(1, 5, b"a", b"")], [row(0, 2, b"b", b"")]]
    with writer.RunWriter(named, "ingest.write") as opened:
        assert [part for some in rows for part in opened.add(batch(some))] == []
        parts = list(opened.finish())
    (path,) = (info.path for info in storage.walk("runs") if info.path.endswith(".index"))
    assert paths.job_of(path) == (1, "j")
    sections = {(part.tp, section.from_text(str(part.file.index))) for part in parts}
    assert {(tp.partition, each.path, each.log, each.first) for tp, each in sections} == {
        (0, path, 0, 1),
        (1, path, 1, 5),
    }
    assert sum(part.file.records for part in parts) == 3


def test_without_an_index_nothing_is_written_in_addition() -> None:
    """Files name no section, and come as they are closed."""
    storage = MemoryStorage()
    (part,) = writer.write([batch([row(0, 1, b"a", b"")])], target(storage), "ingest.write")
    assert part.file.index is None
    assert [info.path for info in storage.walk("runs")] == [part.file.path]


def test_records_are_kept_without_an_index_if_its_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits to be sorted has no room: the files name no index, and none is left."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "full"))
    storage = MemoryStorage()
    named = RunTarget(storage=storage, prefix="1-j", max_bytes=1, is_indexed=True, held_entries=1)
    rows = [batch([row(0, at, b"%d" % at, bytes(17 * MIB))]) for at in range(3)]
    parts = list(writer.write(rows, named, "ingest.write"))
    assert sorted((part.file.first, part.file.index) for part in parts) == [(0, None), (1, None), (2, None)]
    assert {info.path for info in storage.walk("runs")} == {part.file.path for part in parts}


def columns_of(storage: MemoryStorage, rows: list[Row]) -> dict[str, pq.ColumnChunkMetaData]:
    """Writes `rows`; returns what the file's first row group says of each column."""
    (part,) = writer.write([batch(rows)], target(storage), "ingest.write")
    group = pq.ParquetFile(storage.open_input(part.file.path)).metadata.row_group(0)
    return {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}


@pytest.mark.parametrize(("keys", "has_dictionary"), [(5, True), (6, False)])
def test_only_keys_that_come_again_have_a_dictionary(keys: int, has_dictionary: bool) -> None:
    """If more than half of ten differ there is none, as it is the same as the keys once more."""
    columns = columns_of(MemoryStorage(), [row(0, at, b"%d" % (at % keys), b"v") for at in range(10)])
    assert columns["key"].has_dictionary_page is has_dictionary
    assert ("DELTA_LENGTH_BYTE_ARRAY" in columns["key"].encodings) is not has_dictionary
    assert columns["topic"].has_dictionary_page


def test_numbers_are_written_as_differences_and_values_apart_from_their_lengths() -> None:
    """Offsets and times rise: of each only the difference to the one before is held."""
    columns = columns_of(MemoryStorage(), [row(0, at, b"%d" % at, b"v") for at in range(10)])
    for name in ("offset", "timestamp"):
        assert "DELTA_BINARY_PACKED" in columns[name].encodings
    assert "DELTA_LENGTH_BYTE_ARRAY" in columns["value"].encodings
