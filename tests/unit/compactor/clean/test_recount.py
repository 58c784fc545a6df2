from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from compactor.clean.log_to_clean import LogToClean, straddling_runs
from compactor.clean.recount import recount
from compactor.fold import in_memory, two_pass
from compactor.fold.memory_budget import OffsetMapBudget
from compactor.fold.two_pass import FileScan
from compactor.model import record
from compactor.model.actions import AddPartition, Append, Publish
from compactor.model.log import empty
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, apply
from compactor.runs.file_stats import level0_run
from compactor.runs.reader import read_ranges
from compactor.runs.scan import OffsetRange, files_in_order, plan_wide_reads, whole
from compactor.runs.writer import RunTarget, write
from compactor.storage.local import LocalStorage
from tests.support import engine
from tests.support.engine import ingested, log_of, new_state, row, with_range_reports
from tests.support.memory.storage import MemoryStorage
from tests.support.run_files import run_rows, write_run


def test_records_without_a_key_are_counted_on_their_side() -> None:
    """Of a run that is counted in parts each part has its own records without a key, those that were rejected not."""
    storage = MemoryStorage()
    keys = [None, b"k", None, b"k", None, b"k"]
    rows = run_rows("t", 0, 0, [{"key": key, "value": b"v", "rejected": None} for key in keys])
    rows[2]["rejected"] = "null key"
    batch = pa.RecordBatch.from_pylist(rows, schema=record.RUN)
    target = RunTarget(storage=storage, prefix="1-job", max_bytes=1 << 20)
    run = level0_run(0, 6, tuple(write([batch.slice(0, 3), batch.slice(3)], target, "ingest.write")), 0)
    assert (run.keyless, run.rejected) == (2, 1)
    log = replace(empty(TopicPartition("t", 0), 0, 0, None), end=6, folded_end=2, published=2, runs=(run,))
    assert [one.keyless for one in recount(storage, log, run).runs] == [1, 1]


def test_a_run_is_counted_again_where_nothing_lies_below() -> None:
    """Published may move inside a run as often as it likes, also to an offset below which no record is left."""
    storage = MemoryStorage()
    record = {"key": b"k", "value": b"v"}
    run = write_run(storage, [*run_rows("t", 0, 0, [record] * 4), *run_rows("t", 0, 6, [record] * 4)])
    state = apply(CatalogState(), [AddPartition(topic="t", partition=0, bucket=0, start=0)])
    state = apply(state, [Append(topic="t", partition=0, start=0, end=10, run=run)])
    for published, head in ((4, 4), (5, 4), (6, 4), (8, 6)):
        state = apply(state, [Publish(topic="t", partition=0, end=published)])
        log = state.logs[0]
        state = apply(state, [recount(storage, log, run) for run in straddling_runs(log)])
        found = LogToClean.of(state.logs[0])
        assert (found.cleanable_records, found.cleanable_bytes) == (head, 2 * head)
        assert (found.straddling_bytes, found.uncleanable_bytes) == (0, 2 * (8 - head))


def test_what_an_overlap_has_brought_twice_is_read_once_after_a_recount(tmp_path: Path) -> None:
    """A file holds what its run was cut by: whichever way it is read, that is not taken from it as well."""
    storage, state = LocalStorage(str(tmp_path)), new_state({0: 0})
    for lo, hi in ((0, 4), (2, 8)):
        rows = [row(0, at, b"k%d" % at, b"v", rejected="odd" if at % 3 else None) for at in range(lo, hi)]
        state = ingested(storage, state, [with_range_reports(rows, {0: (lo, hi)})])
    state = engine.published(state, {0: 8})
    (across,) = straddling_runs(log_of(state))
    assert (across.start, across.end, across.files[0].first) == (4, 8, 2)
    part = whole(log_of(apply(state, [recount(storage, log_of(state), across)])))
    scan = FileScan(storage=storage, ranges=[part], paths=files_in_order([part]) or ())
    files = in_memory.load(storage, [part])
    folded = two_pass.latest(storage, [part], OffsetMapBudget(100, 10_000))
    assert files is not None
    assert folded is not None
    assert _offsets(two_pass.read_all(scan)) == [*range(8)]
    assert _offsets(folded) == [*range(8)]
    assert _offsets(in_memory.batches(in_memory.latest(files, [part]))) == [*range(8)]
    assert sorted(_wide(storage, part)) == [*range(8)]


def _offsets(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def _wide(storage: LocalStorage, part: OffsetRange) -> list[int]:
    """The offsets that Spark's fold reads of `part`."""
    found: list[int] = []
    for path, ranges in plan_wide_reads([part]).items():
        with storage.open_input(path) as source, pq.ParquetFile(source) as opened:
            found += _offsets(read_ranges(opened, ranges, ["offset"]))
    return found


def test_what_a_neighbour_holds_as_well_is_counted_in_neither_part() -> None:
    """A file that was cut where it overlaps is counted whole until then: the part above is read too, not subtracted."""
    storage = MemoryStorage()
    rows = run_rows("t", 0, 2, [{"key": b"%d" % offset, "value": b"v"} for offset in range(2, 8)])
    run = replace(write_run(storage, rows), start=4)
    log = replace(empty(TopicPartition("t", 0), 0, 0, None), end=8, folded_end=6, published=6, runs=(run,))
    below, above = recount(storage, log, run).runs
    assert [(one.start, one.end, one.records) for one in (below, above)] == [(4, 6, 2), (6, 8, 2)]
    assert [file.entire for one in (below, above) for file in one.files] == [False, False]


def test_what_is_counted_in_parts_is_the_whole() -> None:
    """Records, bytes, tombstones and rejected ones of both parts, though only the one below is read."""
    storage = MemoryStorage()
    found: list[engine.Row] = [
        {"key": b"a", "value": None},
        {"key": None, "value": b"123"},
        {"key": b"bb", "value": b"1"},
        {"key": b"c", "value": None},
        {"key": None, "value": b"4567"},
        {"key": b"d", "value": None},
    ]
    run = write_run(storage, run_rows("t", 0, 0, found))
    log = replace(empty(TopicPartition("t", 0), 0, 0, None), end=6, folded_end=3, published=3, runs=(run,))
    below, above = recount(storage, log, run).runs
    assert (below.start, below.end, above.start, above.end) == (0, 3, 3, 6)
    assert (below.records, below.bytes, below.tombstones, below.rejected) == (3, 7, 1, 1)
    assert (above.records, above.bytes, above.tombstones, above.rejected) == (3, 6, 2, 1)
