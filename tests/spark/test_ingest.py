from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compactor.errors import GapError, IngestError, StorageError
from compactor.ingest.appends import appends
from compactor.ingest.rejected import rejected_topics
from compactor.model.state import CatalogState, apply
from compactor.runs import reader, writer
from compactor.runs.scan import whole
from compactor.storage.local import LocalStorage
from tests.support.engine import (
    Row,
    gathered,
    intake,
    log_of,
    new_state,
    range_report,
    record_dicts,
    row,
    source_frame,
    with_range_reports,
)

LARGEST = 2**63 - 1


def taken(
    spark: SparkSession, storage: LocalStorage, state: CatalogState, tasks: Sequence[Sequence[Row]]
) -> CatalogState:
    """`state` after a micro-batch of `tasks`."""
    batch = gathered(source_frame(spark, intake(storage), *tasks))
    return apply(state, appends(state, batch, 0))


def records(partition: int, lo: int, hi: int) -> list[Row]:
    return [row(partition, offset, b"k%d" % (offset % 7), b"v%d" % offset) for offset in range(lo, hi)]


def test_a_record_comes_back_byte_for_byte(spark: SparkSession, storage: LocalStorage) -> None:
    """Key, value, headers (null values, repeated names), timestamps at both ends of int64: all stay."""
    odd = [
        row(0, 0, b"", b""),
        row(0, 1, b"\x00\xff", None, timestamp=LARGEST, timestamp_type=1),
        row(0, 2, b"\x00", b"x" * 70_000, timestamp=-LARGEST - 1),
        row(0, 5, b"k", b"v", timestamp=-1, timestamp_type=-1),
        row(
            0,
            9,
            b"h",
            b"v",
            headers=[{"key": "a", "value": None}, {"key": "a", "value": b""}, {"key": "", "value": b"\x00"}],
        ),
    ]
    state = taken(spark, storage, new_state({0: 0}), [with_range_reports(odd, {0: (0, 12)})])
    log = log_of(state)
    assert record_dicts(reader.read(storage, whole(log))) == odd
    assert (log.end, log.runs[0].tombstones, log.runs[0].max_timestamp) == (12, 1, LARGEST)


def test_a_frame_is_used_once(spark: SparkSession, storage: LocalStorage) -> None:
    """Writing a micro-batch runs its source exactly once: Kafka is not read twice."""
    reads = spark.sparkContext.accumulator(0)
    frame = source_frame(spark, intake(storage), with_range_reports(records(0, 0, 10), {0: (0, 10)}))

    def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reads.add(1)
        yield from batches

    gathered(frame.mapInArrow(counted, frame.schema))
    assert reads.value == 1


def test_partitions_of_a_task_share_a_file_and_those_with_little_a_row_group(
    spark: SparkSession, storage: LocalStorage
) -> None:
    """A thousand partitions in one batch make one file a task; only what there is much of has row groups of its own."""
    tasks = []
    for first in (0, 500):
        rows = [one for offset in range(3) for p in range(first, first + 500) for one in records(p, offset, offset + 1)]
        much = [row(first + 7, 3 + n, b"%d" % n, bytes(writer.SHARED_BYTES // 2)) for n in range(2)]
        ends = {p: (0, 5 if p == first + 7 else 3) for p in range(first, first + 500)}
        tasks.append(with_range_reports([*rows, *much], ends))
    batch = gathered(source_frame(spark, intake(storage), *tasks))
    assert len({part.file.path for part in batch.parts}) == 2
    assert len(batch.parts) == 1000
    file = pq.ParquetFile(storage.open_input(batch.parts[0].file.path))
    groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
    least = batch.parts[0].partition
    bounds = [(group.column(1).statistics.min, group.column(1).statistics.max, group.num_rows) for group in groups]
    rest = [(first, min(first + 15, least + 499)) for first in range(least + 8, least + 500, 16)]
    assert bounds[:2] == [(least, least + 6, 7 * 3), (least + 7, least + 7, 5)]
    assert bounds[2:] == [(first, last, (last - first + 1) * 3) for first, last in rest]


def test_a_file_is_what_its_part_says(spark: SparkSession, storage: LocalStorage) -> None:
    """Size and checksum of a file in the catalog are those of the file on the store."""
    import hashlib

    batch = gathered(source_frame(spark, intake(storage), with_range_reports(records(0, 0, 99), {0: (0, 99)})))
    data = storage.read(batch.parts[0].file.path)
    file = batch.parts[0].file
    assert (file.file_bytes, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert file.bytes == sum(len(one["key"]) + len(one["value"]) for one in records(0, 0, 99))


def test_records_without_a_key_stay_with_their_reason(spark: SparkSession, storage: LocalStorage) -> None:
    """A record without a key is kept, marked, counted, and the first of them is named."""
    rows = [row(0, 3, b"k", b"v"), row(0, 4, None, b"lost"), row(0, 5, None, None)]
    batch = gathered(source_frame(spark, intake(storage), with_range_reports(rows, {0: (0, 6)})))
    assert rejected_topics(batch) == {"t": (("t", 0), 4, "null key")}
    assert (batch.parts[0].rejected, batch.parts[0].tombstones) == (2, 0)


@pytest.mark.parametrize("keyed", [True, False])
def test_what_the_source_rejects_stays_so(spark: SparkSession, storage: LocalStorage, keyed: bool) -> None:
    """A record that could not be read whole keeps the source's reason, with a key or without, also in a raw copy."""
    odd = {"rejected": "a header name b'\\xff' is not UTF-8"}
    rows = [row(0, 3, b"k", b"v"), {**row(0, 4, b"k", b"v"), **odd}, {**row(0, 5, None, b"v"), **odd}]
    batch = gathered(source_frame(spark, intake(storage, keyed=keyed), with_range_reports(rows, {0: (0, 6)})))
    assert rejected_topics(batch) == {"t": (("t", 0), 4, odd["rejected"])}
    assert batch.parts[0].rejected == 2


def test_overlap_takes_only_the_suffix(spark: SparkSession, storage: LocalStorage) -> None:
    """A batch that was planned again and reaches further adds what is above the log's end, and nothing twice."""
    first = taken(spark, storage, new_state({0: 0}), [with_range_reports(records(0, 0, 10), {0: (0, 10)})])
    again = [with_range_reports(records(0, 4, 16), {0: (4, 16)})]
    state = taken(spark, storage, first, again)
    assert record_dicts(reader.read(storage, whole(log_of(state)))) == records(0, 0, 16)
    assert taken(spark, storage, state, again) == state


def test_a_big_range_read_by_several_tasks_is_one_append(spark: SparkSession, storage: LocalStorage) -> None:
    """Sub-ranges of a partition, read by different tasks, continue its log as one run."""
    tasks = [with_range_reports(records(0, lo, lo + 10), {0: (lo, lo + 10)}) for lo in (20, 0, 10)]
    state = taken(spark, storage, new_state({0: 0}), tasks)
    assert len(log_of(state).runs) == 1
    assert record_dicts(reader.read(storage, whole(log_of(state)))) == records(0, 0, 30)


def test_a_range_without_records_moves_the_end(spark: SparkSession, storage: LocalStorage) -> None:
    """Offsets that hold only markers are taken without a run, and without a file."""
    state = taken(spark, storage, new_state({0: 5}), [[range_report(0, 5, 9, 0)]])
    assert (log_of(state).end, log_of(state).runs) == (9, ())
    assert storage.walk("runs") == []


def test_a_missing_range_and_a_missing_record_are_errors(spark: SparkSession, storage: LocalStorage) -> None:
    """A batch above the log's end, and one that lost a record on its way, are refused."""
    with pytest.raises(GapError):
        taken(spark, storage, new_state({0: 0}), [with_range_reports(records(0, 4, 6), {0: (4, 6)})])
    with pytest.raises(IngestError, match=r"3 records .* 2 written"):
        taken(spark, storage, new_state({0: 0}), [[*records(0, 0, 2), range_report(0, 0, 3, 3)]])


def test_a_store_that_refuses_is_a_storage_error(spark: SparkSession, tmp_path: Path) -> None:
    """What a task meets at the store reaches the driver as what it was."""
    (tmp_path / "file").write_text("not a folder")
    refusing = intake(LocalStorage(str(tmp_path / "file")))
    frame = source_frame(spark, refusing, with_range_reports(records(0, 0, 2), {0: (0, 2)}))
    with pytest.raises(StorageError):
        gathered(frame)


def test_records_lost_in_the_middle_of_a_range_leave_a_gap(spark: SparkSession, storage: LocalStorage) -> None:
    """Retention overtook the reader: what it had read stays, what it read behind the loss too, the gap is said."""
    kept = [*records(0, 0, 3), range_report(0, 0, 3, 3), *records(0, 8, 10), range_report(0, 3, 10, 2, start=8)]
    log = log_of(taken(spark, storage, new_state({0: 0}), [kept]))
    assert [one["offset"] for one in record_dicts(reader.read(storage, whole(log)))] == [0, 1, 2, 8, 9]
    assert (log.end, [(gap.start, gap.end) for gap in log.gaps]) == (10, [(3, 8)])


def test_what_is_superseded_in_one_task_is_left_out(spark: SparkSession, storage: LocalStorage) -> None:
    """Where folds are allowed: the latest of each key, rejected records, and a run that says that it was folded."""
    rows = [*records(0, 0, 20), row(0, 20, None, b"x"), *records(1, 0, 7)]
    frame = source_frame(spark, intake(storage, folds=True), with_range_reports(rows, {0: (0, 21), 1: (0, 7)}))
    state = new_state({0: 0, 1: 0})
    batch = gathered(frame)
    assert [(read.records, read.superseded) for read in batch.ranges] == [(21, 13), (7, 0)]
    assert batch.bytes_read == sum(len(one["key"] or b"") + len(one["value"]) for one in rows)
    logs = apply(state, appends(state, batch, 0)).logs
    kept = [[one["offset"] for one in record_dicts(reader.read(storage, whole(log)))] for log in logs]
    assert kept == [list(range(13, 21)), list(range(7))]
    assert [log.runs[0].folded for log in logs] == [True, False]


def test_a_suffix_of_what_was_folded_is_the_fold_of_the_suffix(spark: SparkSession, storage: LocalStorage) -> None:
    """A batch that comes again and reaches further, folded over all of it: above the log's end nothing is missing."""
    first = taken(spark, storage, new_state({0: 0}), [with_range_reports(records(0, 0, 10), {0: (0, 10)})])
    frame = source_frame(spark, intake(storage, folds=True), with_range_reports(records(0, 4, 30), {0: (4, 30)}))
    log = log_of(apply(first, appends(first, gathered(frame), 0)))
    assert [one["offset"] for one in record_dicts(reader.read(storage, whole(log)))] == [*range(10), *range(23, 30)]
    assert [(run.start, run.end, run.folded) for run in log.runs] == [(0, 10, False), (10, 30, True)]


def test_nothing_is_folded_across_a_loss(spark: SparkSession, storage: LocalStorage) -> None:
    """Each statement counts what was left out of its own records, also where another partition's are around them."""
    task = [
        *(one for offset in range(9) for p in (0, 1) for one in records(p, offset, offset + 1)),
        range_report(0, 0, 9, 9),
        *records(0, 12, 21),
        range_report(0, 9, 21, 9, start=12),
        range_report(0, 21, 30, 0, start=30),
        *records(1, 9, 14),
        range_report(1, 0, 14, 14),
    ]
    batch = gathered(source_frame(spark, intake(storage, folds=True), task))
    assert [(read.tp.partition, read.lo, read.records, read.superseded) for read in batch.ranges] == [
        (0, 0, 9, 2),
        (0, 9, 9, 2),
        (0, 21, 0, 0),
        (1, 0, 14, 2),
    ]
    state = new_state({0: 0, 1: 0})
    log = log_of(apply(state, appends(state, batch, 0)))
    assert (log.end, [(gap.start, gap.end) for gap in log.gaps]) == (30, [(9, 12), (21, 30)])
