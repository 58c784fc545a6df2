"""The latest record of every key over offset ranges: the rule, and the contract of what folds by it.

`chooser` chooses one of three: `in_memory` folds in this process, `in_tasks` in Spark tasks (in memory, or in
two passes), `on_spark` folds any amount, as it spills.

**The rule.** A rejected record is the latest of nothing. Publishing sends it as a dead letter, so a fold leaves it in
its place; what rewrites runs leaves it out. It also leaves out records without a key, which only a log has that was not
folded by key before (`LogValidator.validateKey`). The rule stands here once, for Arrow and for Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from compactor.fold.memory_budget import FoldBudget
from compactor.model.record import KEY_IDENTITY
from compactor.runs.scan import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def is_rejected(rows: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
    """Returns which of `rows` were rejected."""
    return pc.is_valid(rows["rejected"])


def is_foldable(rows: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
    """Returns which of `rows` may be the latest of a key."""
    return pc.and_(pc.is_null(rows["rejected"]), pc.is_valid(rows["key"]))


def rejected_column() -> Column:
    """Returns `is_rejected` as an expression of Spark's."""
    from pyspark.sql.functions import col

    return col("rejected").isNotNull()


def foldable_column() -> Column:
    """Returns `is_foldable` as an expression of Spark's."""
    from pyspark.sql.functions import col

    return col("rejected").isNull() & col("key").isNotNull()


def compared_column() -> Column:
    """Returns `record.as_compared` as an expression of Spark's."""
    from pyspark.sql.functions import coalesce, col

    return coalesce(col(KEY_IDENTITY), col("key")).alias("key")


class FoldFilter(Protocol):
    """Selects which records of a scan are kept, for Arrow and for Spark."""

    @property
    def by_key(self) -> bool:
        """Whether only the latest record of every key is kept; otherwise nothing is folded."""

    def of(self, logs: Sequence[int]) -> FoldFilter:
        """Returns the same for the ranges numbered `logs` alone; they are numbered from 0 again."""

    def of_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns what is kept of `batch` (SCAN columns), which with `by_key` has latest and rejected records alone."""

    def on_spark(self, frame: DataFrame) -> DataFrame:
        """Returns what is kept of `frame` (SCAN columns), of all its records."""


Work = Callable[[int, Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]
"""What a task, by its number, does with its records (record.RUN, by range and offset): it yields rows of answers."""


class FoldJob(Struct, frozen=True, kw_only=True):
    """A fold of `ranges`: `work` is done with the records that `keep` leaves, and answers with rows of `answers`.

    `tasks`, by number, say which ranges belong together, numbered as in `ranges`: all of them go to one call of `work`,
    range by range, even if there are no ranges or records. None: tasks are cut to about `target_bytes`; the ranges of a
    task may come mixed, as files hold them, and a file that several tasks need is verified once.

    `work` makes the function that is pickled into Spark's tasks, `work_here` the one that runs in this process.
    `limit`: bytes per second that the whole job reads and writes at most. `is_repeatable`: a job that ends early has no
    effect.
    """

    ranges: Sequence[OffsetRange]
    keep: FoldFilter
    work: Callable[[], Work]
    answers: pa.Schema
    budget: FoldBudget
    tasks: Mapping[int, Sequence[int]] | None = None
    target_bytes: int = 0
    work_here: Callable[[], Work] | None = None
    limit: int | None = None
    is_repeatable: bool = False

    def of(self, logs: Sequence[int]) -> FoldJob:
        """Returns the same for the ranges numbered `logs` alone; they are numbered from 0 again."""
        return replace(self, ranges=[self.ranges[log] for log in logs], keep=self.keep.of(logs))

    def of_tasks(self, numbers: Iterable[int]) -> FoldJob:
        """Returns the same for these of its `tasks` alone."""
        tasks = self.tasks or {}
        logs = sorted(log for number in numbers for log in tasks[number])
        renumbered = {log: at for at, log in enumerate(logs)}
        return replace(self.of(logs), tasks={task: [renumbered[log] for log in tasks[task]] for task in numbers})


class Folded(NamedTuple):
    """The answers of a job, rows of its `answers`, and the part of it that was not begun; None if all is done."""

    rows: list[dict[str, Any]]
    left: FoldJob | None = None


class LatestPerKey(Protocol):
    """Folds by key; the same job has the same answers whichever implementation carries it out."""

    def run(self, job: FoldJob) -> Folded:
        """Folds the ranges of `job` and does its work. Raises StorageError, FoldError, and what its work raises."""
