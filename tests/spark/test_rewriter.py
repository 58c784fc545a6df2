from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from compactor.clean.record_filter import RecordFilter
from compactor.clean.rewriter import BUDGET, ONE_AT_A_TIME, CompactionTask, Rewriter, fold_job, local_job
from compactor.clean.tombstones import Fate, fate
from compactor.errors import StoppedError, StorageError
from compactor.fold import in_memory, memory_budget
from compactor.fold.chooser import Folds
from compactor.fold.in_tasks import InTasks
from compactor.fold.latest_per_key import Folded, FoldJob
from compactor.fold.memory_budget import FoldBudget, OffsetMapBudget
from compactor.fold.on_spark import OnSpark
from compactor.model import record
from compactor.model.log import Run
from compactor.model.state import CatalogState
from compactor.runs import file_stats, reader
from compactor.runs.file_stats import FileStats
from compactor.runs.scan import OffsetRange, between
from compactor.storage.local import LocalStorage
from compactor.turns import READERS
from tests.support.engine import Row, ingested, log_of, new_state, row, target, with_range_reports
from tests.support.java_errors import JavaError, worker_ended
from tests.support.local_spark import LocalSpark

KEYS = [b"", b"\x00", b"a", b"ab", b"\xff", b"a" * 300, None]
NOW = 500
TIMEOUT_S = 30.0


def rows_of(seed: int, lo: int, hi: int) -> list[Row]:
    chance = random.Random(seed)
    return [
        row(
            partition,
            offset,
            chance.choice([*KEYS, b"%d" % offset]),
            chance.choice([None, b"v%d" % offset]),
            headers=[{"key": "h", "value": b"1"}] if chance.random() < 0.2 else [],
            rejected="undecodable" if chance.random() < 0.1 else None,
        )
        for offset in range(lo, hi)
        for partition in range(3)
        if chance.random() < 0.8
    ]


def filled(storage: LocalStorage, seed: int = 0) -> CatalogState:
    """Three partitions of 60 offsets in three runs, a file of each for all partitions."""
    state = new_state(dict.fromkeys(range(3), 0))
    for number in range(3):
        lo, hi = 20 * number, 20 * number + 20
        read = with_range_reports(rows_of(100 * seed + number, lo, hi), dict.fromkeys(range(3), (lo, hi)))
        state = ingested(storage, state, [read], now_ms=number)
    return state


def rewriting(
    storage: LocalStorage, job: str, ranges: Sequence[OffsetRange], keep: RecordFilter, budget: FoldBudget = BUDGET
) -> CompactionTask:
    return CompactionTask(ranges=ranges, target=target(storage, job), keep=keep, failpoint="clean.write", budget=budget)


Written = tuple[tuple[FileStats, ...] | None, ...]


def rewritten(
    fold: type[InTasks | OnSpark], spark: SparkSession, storage: LocalStorage, task: CompactionTask
) -> Written:
    """What one implementation of the fold has written of each range; None where it has left it."""
    done = fold(spark, storage).run(fold_job(task, spark.sparkContext.defaultParallelism))
    left = {one.tp for one in done.left.ranges} if done.left else set()
    written = file_stats.by_range(task.ranges, map(file_stats.from_row, done.rows))
    return tuple(None if part.tp in left else one for part, one in zip(task.ranges, written, strict=True))


by_tasks = partial(rewritten, InTasks)
by_spark = partial(rewritten, OnSpark)


def content(storage: LocalStorage, part: OffsetRange, written: tuple[FileStats, ...]) -> list[Row]:
    """The records, and their horizons, of what was written of `part`."""
    files = tuple(one.file for one in written)
    run = Run(start=part.start, end=part.end, level=1, files=files, records=0, bytes=0)
    kept = OffsetRange(tp=part.tp, start=part.start, end=part.end, runs=(run,))
    return [one for batch in reader.read(storage, kept) for one in batch.to_pylist()]


def figures(written: tuple[FileStats, ...]) -> tuple[int, ...]:
    sizes = [(one.file.records, one.file.bytes, one.tombstones, one.horizons, one.rejected) for one in written]
    return tuple(map(sum, zip(*sizes, strict=True)))


def assert_alike(
    storage: LocalStorage,
    ranges: Sequence[OffsetRange],
    one: Sequence[tuple[FileStats, ...] | None],
    other: Sequence[tuple[FileStats, ...] | None],
) -> None:
    """Two rewrites of `ranges` have left the same records, and say the same of them."""
    for part, ours, theirs in zip(ranges, one, other, strict=True):
        assert ours
        assert theirs
        assert content(storage, part, ours) == content(storage, part, theirs)
        assert figures(ours) == figures(theirs)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "keep",
    [RecordFilter(horizons=(700, 800, 900), now_ms=NOW), RecordFilter(), RecordFilter(by_key=False)],
    ids=["full fold", "merge", "raw copy"],
)
def test_tasks_leave_what_sparks_fold_leaves(
    spark: SparkSession, storage: LocalStorage, seed: int, keep: RecordFilter
) -> None:
    """Nobody can tell from the runs which of the two has written them."""
    state = filled(storage, seed)
    ranges = [between(log, 7 * seed, 60 - 5 * seed) for log in state.logs]
    in_tasks = by_tasks(spark, storage, rewriting(storage, "1-t", ranges, keep))
    on_spark = by_spark(spark, storage, rewriting(storage, "1-s", ranges, keep))
    assert_alike(storage, ranges, in_tasks, on_spark)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@pytest.mark.parametrize(
    "keep", [RecordFilter(horizons=(700, 800, 900), now_ms=NOW), RecordFilter()], ids=["full fold", "merge"]
)
def test_little_is_rewritten_without_spark(
    spark: SparkSession, storage: LocalStorage, seed: int, keep: RecordFilter
) -> None:
    """What the worker's own process leaves is what Spark's fold leaves."""
    state = filled(storage, seed)
    ranges = [between(log, 7 * seed, 60 - 5 * seed) for log in state.logs]
    here = Rewriter(cast("Any", None), storage, local_records=1_000).rewrite(rewriting(storage, "1-h", ranges, keep))
    on_spark = by_spark(spark, storage, rewriting(storage, "1-s", ranges, keep))
    assert_alike(storage, ranges, here, on_spark)


def test_what_tasks_have_to_do_is_not_rewritten_here(storage: LocalStorage) -> None:
    """More than the budget, with a limit of bytes per second, or without a fold by key."""
    ranges = [between(log, 0, 60) for log in filled(storage).logs]
    task, budget = rewriting(storage, "1-h", ranges, RecordFilter()), memory_budget.local(1_000)
    assert local_job(task, budget) is not None
    assert local_job(task, memory_budget.local(20)) is None
    assert local_job(replace(task, limit=1_000), budget) is None
    assert local_job(replace(task, keep=RecordFilter(by_key=False)), budget) is None


def test_connectors_rewrite_here_one_at_a_time(storage: LocalStorage) -> None:
    """Twenty that begin together would take each other's publishes the processor; a stop waits for no other.

    One that is stopped rewrites nothing: nothing could end it before it is done.
    """
    stopping, waiting = threading.Event(), threading.Event()
    ranges = [between(log, 0, 60) for log in filled(storage).logs]

    def is_stopping() -> bool:
        waiting.set()  # who waits for a turn asks again and again
        return stopping.is_set()

    one = Rewriter(cast("Any", None), storage, is_stopping, local_records=1_000)

    def rewrite() -> object:
        return one.rewrite(rewriting(storage, "1-h", ranges, RecordFilter()))

    with ThreadPoolExecutor(1) as other:
        with ONE_AT_A_TIME:  # another connector does
            waits = other.submit(rewrite)
            assert waiting.wait(TIMEOUT_S)
            assert not wait([waits], 0.2).done
            stopping.set()
            with pytest.raises(StoppedError):
                waits.result(TIMEOUT_S)
        stopping.clear()
        assert rewrite()
    assert not ONE_AT_A_TIME.locked()


def test_a_damaged_file_is_not_decoded_here(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could end the worker: all of the job goes to Spark."""
    state = filled(storage)
    ranges = [between(log, 0, 60) for log in state.logs]
    damage(storage, log_of(state).runs[1].files[0].path)
    left: list[FoldJob] = []

    class Noted:
        def run(self, job: FoldJob) -> Folded:
            left.append(job)
            return Folded([])

    spark = cast("Any", None)
    folds = replace(Folds.of(spark, storage), on_spark=Noted())
    rewriter = Rewriter(spark, storage, local_records=1_000, folds=folds)
    rewriter.rewrite(rewriting(storage, "1-h", ranges, RecordFilter()))
    assert [one.ranges for one in left] == [ranges]


def test_a_rewrite_leaves_a_task_of_sparks_to_who_reads(storage: LocalStorage) -> None:
    """Three logs of a task each: one after the other in one of two cores, as Spark takes no task away from a job."""
    ranges = [between(log, 0, 60) for log in filled(storage).logs]
    for what, used in ((nullcontext(), [2, 3]), (READERS.reading(), [1, 1])):
        with what:
            spark = LocalSpark(cores=2)
            budget = replace(BUDGET, records=1)
            task = rewriting(storage, f"1-{sum(used)}", ranges, RecordFilter(), budget)
            assert all(by_tasks(cast("SparkSession", spark), storage, task))
        # Files are verified by one job, then folded by another.
        assert spark.tasks == used


HELD = {
    "one class": OffsetMapBudget(2_000, 1 << 20),
    "many classes": OffsetMapBudget(8, 1 << 20),
    "no task": OffsetMapBudget(8, 1 << 20, 1),
}
"""What each of two tasks holds half of; of the last, that no class may be halved: Spark has to fold it."""


@pytest.mark.parametrize("way", HELD)
@pytest.mark.parametrize("most_records", [1, 16_000_000], ids=["a log a task", "all in one"])
def test_every_way_leaves_what_one_process_would_hold(
    spark: SparkSession, storage: LocalStorage, way: str, most_records: int
) -> None:
    """In memory, with one class of keys, with many, by Spark's plan: the same records, however many a log has."""
    cores = spark.sparkContext.defaultParallelism
    held_keys = HELD[way]
    budget = FoldBudget(
        keys=replace(held_keys, keys=held_keys.keys * min(3, cores), bytes=held_keys.bytes * 3), records=most_records
    )
    ranges = [between(log, 0, 60) for log in filled(storage).logs]
    keep = RecordFilter(horizons=(700, 800, 900), now_ms=NOW)
    in_tasks = by_tasks(spark, storage, rewriting(storage, "1-t", ranges, keep, budget))
    assert [one is None for one in in_tasks] == [way == "no task"] * 3
    done = Rewriter(spark, storage).rewrite(rewriting(storage, "1-r", ranges, keep, budget))
    for number, (part, found) in enumerate(zip(ranges, done, strict=True)):
        assert content(storage, part, found) == held(storage, part, keep.of([number]))


def held(storage: LocalStorage, part: OffsetRange, keep: RecordFilter) -> list[Row]:
    """What `keep` leaves of `part` where all of it is in one process's memory."""
    files = in_memory.load(storage, [part])
    assert files is not None
    (batch,) = in_memory.latest(files, [part]).combine_chunks().to_batches()
    return keep.of_batch(batch).select(record.RUN.names).to_pylist()


@pytest.mark.parametrize("fold", [InTasks, OnSpark], ids=["tasks", "Spark"])
def test_a_second_fold_drops_what_a_first_has_stamped(
    spark: SparkSession, storage: LocalStorage, fold: type[InTasks | OnSpark]
) -> None:
    """As `tombstones.fate` has it of one tombstone, whatever the retention is by then; a value never gets a horizon."""
    state = filled(storage)
    ranges = [between(log, 0, 60) for log in state.logs]
    first = RecordFilter(horizons=(700, 700, 700), now_ms=NOW)
    (stamped, *_) = rewritten(fold, spark, storage, rewriting(storage, "1-a", ranges, first))
    assert stamped
    rows = content(storage, ranges[0], stamped)
    tombstones = [one for one in rows if one["value"] is None]
    assert tombstones
    assert {one["delete_horizon"] for one in tombstones} == {700}
    assert {one["delete_horizon"] for one in rows if one["value"] is not None} == {None}
    run = Run(start=0, end=60, level=-1, files=tuple(one.file for one in stamped), records=0, bytes=0)
    again = [OffsetRange(tp=ranges[0].tp, start=0, end=60, runs=(run,))]
    for now_ms, gone in ((699, False), (700, True)):
        keep = RecordFilter(horizons=(9000,), now_ms=now_ms)
        (found,) = rewritten(fold, spark, storage, rewriting(storage, f"1-{now_ms}", again, keep))
        assert found
        kept = content(storage, again[0], found)
        assert (fate(700, now_ms) is Fate.DROP) is gone
        assert kept == ([one for one in rows if one["value"] is not None] if gone else rows)


def damage(storage: LocalStorage, path: str) -> None:
    """Changes one byte of a file."""
    data = bytearray(storage.read(path))
    data[len(data) // 3] ^= 0xFF
    storage.delete(path)
    storage.write(path, bytes(data))


def test_a_damaged_file_is_left_to_spark(spark: SparkSession, storage: LocalStorage) -> None:
    """A damaged page can end the process that decodes it: Spark's fold names it, or reads around it."""
    state = filled(storage)
    ranges = [between(log, 0, 60) for log in state.logs]
    assert all(by_tasks(spark, storage, rewriting(storage, "1-a", ranges, RecordFilter())))
    damage(storage, log_of(state).runs[1].files[0].path)
    assert by_tasks(spark, storage, rewriting(storage, "1-b", ranges, RecordFilter())) == (None,) * 3


def test_more_keys_than_a_task_holds_are_left_to_spark(spark: SparkSession, storage: LocalStorage) -> None:
    """How many keys differ no catalog says: a task that sees too many stops, and all is folded all the same."""
    state = filled(storage)
    ranges = [between(log, 0, 60) for log in state.logs]
    keys = OffsetMapBudget(2 * spark.sparkContext.defaultParallelism, 1_000, hash_partitions=1)
    budget = replace(BUDGET, keys=keys)
    assert by_tasks(spark, storage, rewriting(storage, "1-a", ranges, RecordFilter(), budget)) == (None,) * 3
    done = Rewriter(spark, storage).rewrite(rewriting(storage, "1-b", ranges, RecordFilter(), budget))
    wanted = by_spark(spark, storage, rewriting(storage, "1-c", ranges, RecordFilter()))
    assert [figures(one) for one in done] == [figures(one or ()) for one in wanted]


def test_what_is_left_is_folded_with_its_own_horizons(spark: SparkSession, storage: LocalStorage) -> None:
    """Some logs by tasks, others by Spark, in one answer: each has the horizon of its number."""
    state = filled(storage)
    ranges = [between(log_of(state, p), 0, (20, 60, 20)[p]) for p in range(3)]
    cores = spark.sparkContext.defaultParallelism
    keys = OffsetMapBudget(9 * cores, 10_000 * cores, hash_partitions=1)
    budget = FoldBudget(keys=keys, records=25 * cores)
    keep = RecordFilter(horizons=(701, 702, 703), now_ms=NOW)
    assert by_tasks(spark, storage, rewriting(storage, "1-a", ranges, keep, budget))[1] is None
    done = Rewriter(spark, storage).rewrite(rewriting(storage, "1-b", ranges, keep, budget))
    for part, written, horizon in zip(ranges, done, keep.horizons or (), strict=True):
        assert {one["delete_horizon"] for one in content(storage, part, written)} == {None, horizon}


class FailingTasks:
    """Folds in tasks (`LatestPerKey`) that raise `error`; `tried` has an entry for each."""

    def __init__(self, error: Exception) -> None:
        self.tried: list[int] = []
        self._error = error

    def run(self, _: FoldJob) -> Folded:
        self.tried.append(1)
        raise self._error


def test_a_task_whose_process_ends_is_sparks_from_then_on(
    spark: SparkSession, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Perhaps for want of memory: the same would end the next one as well, and Spark's fold spills."""
    state = filled(storage)
    ranges = [between(log, 0, 60) for log in state.logs]
    tasks = FailingTasks(worker_ended())
    rewriting_ = Rewriter(spark, storage, folds=replace(Folds.of(spark, storage), in_tasks=tasks))
    for number in range(2):
        done = rewriting_.rewrite(rewriting(storage, f"1-{number}", ranges, RecordFilter()))
        assert all(done)
    assert tasks.tried == [1]


def test_a_full_disk_is_an_error_of_the_store(
    spark: SparkSession, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes it for the end of a process: Spark's fold would find the same disk."""
    tasks = FailingTasks(StorageError("Could not write x: No space left on device.", "Make room."))
    folds = replace(Folds.of(spark, storage), in_tasks=tasks)
    with pytest.raises(StorageError, match="No space left"):
        Rewriter(spark, storage, folds=folds).rewrite(rewriting(storage, "1-job", [], RecordFilter()))


def test_a_stop_is_not_answered_by_another_job(
    spark: SparkSession, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal to the whole group ends tasks as well: then nothing begins anew."""
    tasks = FailingTasks(worker_ended())
    folds = replace(Folds.of(spark, storage), in_tasks=tasks)
    with pytest.raises(JavaError, match="exited"):
        Rewriter(spark, storage, lambda: True, folds=folds).rewrite(rewriting(storage, "1-job", [], RecordFilter()))


def test_rejected_records_stay_in_a_raw_copy(spark: SparkSession, storage: LocalStorage) -> None:
    """A policy that does not compact merges runs and leaves nothing out."""
    state = filled(storage)
    part = between(log_of(state), 0, 60)
    before = [one for batch in reader.read(storage, part) for one in batch.to_pylist()]
    assert any(one["rejected"] for one in before)
    (done,) = by_tasks(spark, storage, rewriting(storage, "1-job", [part], RecordFilter(by_key=False)))
    assert done
    assert content(storage, part, done) == before
