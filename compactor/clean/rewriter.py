"""Rewrites runs for cleans and merges: a compaction task is a fold with tasks that write files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.clean.record_filter import RecordFilter
from compactor.errors import StoppedError
from compactor.fold.chooser import CheapestFold, Folds
from compactor.fold.latest_per_key import FoldJob, Work
from compactor.fold.memory_budget import FoldBudget, MemoryBudget, local
from compactor.fold.throttler import Throttler
from compactor.runs import file_stats, writer
from compactor.runs.file_stats import FileStats
from compactor.runs.scan import OffsetRange
from compactor.runs.writer import RunTarget
from compactor.storage.base import Storage
from compactor.turns import turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUDGET: Final = FoldBudget(records=16_000_000)
"""What the tasks of a machine work on together: with more records, keys might go to disk.

A log that has more records is a task by itself.
"""

_REPORTED: Final = 1_000
"""How many files' parts a batch of answers tells of at most; one batch for each would take as long as the writing."""

ONE_AT_A_TIME: Final = threading.Lock()
"""Held while this process rewrites: the cleaners of many connectors begin together, and publishes need a core."""


class CompactionTask(Struct, frozen=True, kw_only=True):
    """A rewrite of `ranges`: the records that `keep` keeps go by offset into files of `target`, up to its max_bytes.

    `failpoint` is hit as each is closed. `limit` is what the rewrite reads and writes at most, in bytes per second.
    `budget` is what Spark's tasks may use, None for BUDGET.
    """

    ranges: Sequence[OffsetRange]
    target: RunTarget
    keep: RecordFilter
    failpoint: str
    limit: int | None = None
    budget: FoldBudget | None = None


class Rewriter:
    """Carries out compaction tasks, for one thread. Once `stopped` returns True, nothing is tried again.

    What holds up to `local_records` is rewritten in this process: a Spark job takes longer than that.
    """

    def __init__(
        self,
        spark: SparkSession,
        storage: Storage,
        stopped: Callable[[], bool] = lambda: False,
        *,
        local_records: int = -1,
        folds: Folds | None = None,
    ) -> None:
        self._spark = spark
        self._stopped = stopped
        # What this process rewrites by itself: at most `local_records` records, -1 for none.
        self._local = local(local_records)
        self._fold = CheapestFold(folds or Folds.of(spark, storage), "rewriting", stopped)

    def rewrite(self, task: CompactionTask) -> tuple[tuple[FileStats, ...], ...]:
        """Rewrites the ranges of `task`. Returns the statistics of the files of each, by offset.

        No commit names the files of a failed job, and a vacuum removes them: so a job may be done again. Raises
        StorageError, FoldError.
        """
        job = local_job(task, self._local)
        if job is None:
            done = self._fold.run(fold_job(task, self._spark.sparkContext.defaultParallelism))
        else:
            with turn(ONE_AT_A_TIME, self._stopped) as mine:
                if not mine:
                    raise StoppedError("A stop came before a log was rewritten.", "The next start does it.")
                done = self._fold.run(job)
        return file_stats.by_range(task.ranges, map(file_stats.from_row, done.rows))


def local_job(task: CompactionTask, budget: MemoryBudget) -> FoldJob | None:
    """Returns the fold of `task` for this process if it fits `budget`; None if it is for Spark.

    It is also for Spark if it has a limit of bytes, which Spark's tasks keep, and if nothing is folded by key.
    """
    if task.limit is not None or not task.keep.by_key or not budget.fits(task.ranges):
        return None
    return replace(
        fold_job(task, 1),
        budget=FoldBudget(here=budget),
        tasks={0: range(len(task.ranges))},
        work_here=lambda: _writing(task.target, task.failpoint, Throttler.shared(None, 1)),
    )


def fold_job(task: CompactionTask, cores: int) -> FoldJob:
    """Returns the fold of `task` for Spark: its tasks write files, and its answers are rows of FILE_STATS."""
    throttler = Throttler.shared(task.limit, cores)
    return FoldJob(
        ranges=task.ranges,
        keep=task.keep,
        work=lambda: _writing(task.target, task.failpoint, throttler),
        answers=file_stats.FILE_STATS,
        budget=task.budget or BUDGET,
        target_bytes=task.target.max_bytes,
        limit=task.limit,
        is_repeatable=True,
    )


def _writing(target: RunTarget, failpoint: str, throttler: Throttler) -> Work:
    """Returns the work of a task: its records become files of `target`; the limit counts written bytes, too."""

    def work(_: int, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = writer.write(throttler.throttled(records), target, failpoint)
        while some := list(islice(written, _REPORTED)):
            yield file_stats.to_batch(some)

    return work
