"""Folds in Spark tasks: each reads its files and folds them with Arrow, and nothing crosses into Spark's JVM.

A task folds in memory what fits there; otherwise it reads the keys first (`two_pass`), and the rest while it works.
Nothing is shuffled. Spark's fold, which takes any amount, needs several times as long for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from msgspec import Struct

from compactor.errors import DEFECT, FoldError
from compactor.fold import in_memory, two_pass
from compactor.fold.latest_per_key import Folded, FoldFilter, FoldJob
from compactor.fold.memory_budget import FoldBudget
from compactor.fold.task_split import split_by_log
from compactor.fold.throttler import Throttler
from compactor.model.record import RUN
from compactor.runs.scan import OffsetRange, files_of
from compactor.runs.writer import cut
from compactor.spark import tasks
from compactor.storage.base import Storage
from compactor.turns import bound, most_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The split that a row of answers belongs to, by its place in the list of splits.
_TASK: Final = pa.field("task", pa.int32())
_LEFT: Final = pa.field("left", pa.int32())
"""1 in the last row of a task that has not begun its work, 0 if it was done; null in rows of answers."""

_DAMAGED: Final = pa.schema([pa.field("path", pa.string())])


class _Split(Struct, frozen=True):
    """What one task folds; `number` is passed to its work."""

    number: int
    logs: tuple[int, ...]
    ranges: tuple[OffsetRange, ...]
    keep: FoldFilter


_Fold = Callable[[_Split], Iterator[pa.RecordBatch] | None]
"""Folds a split in a task: yields the records that are kept (record.RUN); None if the split is left."""


class InTasks:
    """`LatestPerKey` in tasks that fold by themselves, in memory or in two passes."""

    def __init__(self, spark: SparkSession, storage: Storage) -> None:
        self._spark = spark
        self._storage = storage

    def run(self, job: FoldJob) -> Folded:
        """See `LatestPerKey.run`.

        These ranges are left: those too large for a task; those with more keys than its memory and disk hold; those
        with a file that is not, byte for byte, what was written. The damage may lie in records of other ranges, and
        only Spark reads around it.
        """
        return self._run_cut_tasks(job) if job.tasks is None else self._run_given_tasks(job)

    def _run_given_tasks(self, job: FoldJob) -> Folded:
        """Folds in one Spark task for each of the job's tasks: one range after the other."""
        tasks = job.tasks or {}
        budget = job.budget.shared(max(1, min(len(tasks), self._cores)))
        every = [_split_of(job, number, logs) for number, logs in tasks.items()]
        splits = [split for split in every if budget.read.fits(split.ranges)]
        answers = self._run(job, splits, partial(in_order, self._storage, budget))
        done = {split.number for at, split in enumerate(splits) if at not in answers.left}
        left = [number for number in tasks if number not in done]
        return Folded(answers.rows, job.of_tasks(left) if left else None)

    def _run_cut_tasks(self, job: FoldJob) -> Folded:
        """Folds in tasks of whole ranges, each read together as they lie in files.

        One of Spark's tasks is left to connectors that read: what they publish would else wait for the longest range.
        """
        damaged = self._damaged(job)
        sound = [log for log, offset_range in enumerate(job.ranges) if damaged.isdisjoint(files_of([offset_range]))]
        most = most_tasks(self._cores)
        budget = job.budget.shared(max(1, min(most, len(sound))))
        fitting = [log for log in sound if budget.read.fits([job.ranges[log]])]
        own = job.of(fitting)
        made = split_by_log(own.ranges, job.target_bytes, most, budget.records)
        splits = [_split_of(own, number, task_split.logs) for number, task_split in enumerate(made)]
        throttler = Throttler.shared(job.limit, most)
        fold = partial(together, self._storage, budget, throttler)
        answers = self._run(job, splits, fold, bound(most, self._cores))
        done = {fitting[log] for at, split in enumerate(splits) if at not in answers.left for log in split.logs}
        left = [log for log in range(len(job.ranges)) if log not in done]
        return Folded(answers.rows, job.of(left) if left else None)

    @property
    def _cores(self) -> int:
        return self._spark.sparkContext.defaultParallelism

    def _damaged(self, job: FoldJob) -> set[str]:
        """Finds the paths of files that are not what was written; each is read once, however many tasks need it."""
        storage, most = self._storage, most_tasks(self._cores)
        files = sorted(files_of(job.ranges).values(), key=lambda file: file.file_bytes)
        throttler = Throttler.shared(job.limit, most)

        def task(number: int) -> list[pa.RecordBatch]:
            own = files[number::most]
            damaged = [file.path for file in own if not two_pass.are_intact(storage, [file], throttler)]
            return [pa.RecordBatch.from_pydict({"path": damaged}, _DAMAGED)]

        return {row["path"] for row in tasks.run(self._spark, min(most, len(files)), task, _DAMAGED)}

    def _run(self, job: FoldJob, splits: Sequence[_Split], fold: _Fold, most: int | None = None) -> _Answers:
        """Runs one job, in `most` tasks of Spark's at most: returns the answers, and which of `splits` were left."""
        schema = pa.schema([*job.answers, _TASK, _LEFT])
        work = job.work() if splits else None

        def task(at: int) -> list[pa.RecordBatch]:
            records = fold(splits[at])
            done = [] if records is None or work is None else list(work(splits[at].number, records))
            mark = pa.RecordBatch.from_pylist([{_TASK.name: at, _LEFT.name: int(records is None)}], schema)
            return [*(_numbered(batch, at, schema) for batch in done), mark]

        rows = tasks.run(self._spark, len(splits), task, schema, most)
        left = {row[_TASK.name]: bool(row[_LEFT.name]) for row in rows if row[_LEFT.name] is not None}
        if silent := {*range(len(splits))} - left.keys():
            names = ", ".join(sorted(str(part.tp) for at in silent for part in splits[at].ranges))
            raise FoldError(f"Tasks of a fold have not told that they are done: those of {names}.", DEFECT)
        answers = [{name: row[name] for name in job.answers.names} for row in rows if row[_LEFT.name] is None]
        return _Answers(answers, {at for at, is_left in left.items() if is_left})


class _Answers(NamedTuple):
    """Rows of a job's answers, and the numbers of splits that were left."""

    rows: list[dict[str, Any]]
    left: set[int]


def _split_of(job: FoldJob, number: int, logs: Sequence[int]) -> _Split:
    own = job.of(logs)
    return _Split(number, tuple(logs), tuple(own.ranges), own.keep)


def _numbered(answers: pa.RecordBatch, task: int, schema: pa.Schema) -> pa.RecordBatch:
    rows = answers.num_rows
    columns = [*answers.columns, pa.repeat(pa.scalar(task, _TASK.type), rows), pa.nulls(rows, _LEFT.type)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def in_order(storage: Storage, budget: FoldBudget, split: _Split) -> Iterator[pa.RecordBatch] | None:
    """Folds one range after the other: in memory what fits there."""
    if budget.memory.fits(split.ranges):
        files = in_memory.load(storage, split.ranges)
        records = None if files is None else in_memory.batches(in_memory.latest(files, split.ranges))
    else:
        records = two_pass.latest(storage, split.ranges, budget.keys)
    return None if records is None else _kept(split, records)


def together(
    storage: Storage, budget: FoldBudget, throttler: Throttler, split: _Split
) -> Iterator[pa.RecordBatch] | None:
    """Folds ranges with sound files in the order of the records in the files; in pieces of about a row group."""
    scan = two_pass.scan_of(storage, split.ranges, throttler)
    which = None
    if scan is None or (split.keep.by_key and (which := two_pass.build_offset_map(scan, budget.keys)) is None):
        return None
    records = two_pass.read_all(scan) if which is None else two_pass.clean_into(scan, which)
    return (piece for batch in _kept(split, records) for piece in cut(batch))


def _kept(split: _Split, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (split.keep.of_batch(batch).select(RUN.names) for batch in records)
