"""Chooses the cheapest fold within a memory budget: this process for little, tasks for more, Spark for any amount."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from compactor.fold.in_memory import InMemory
from compactor.fold.in_tasks import InTasks
from compactor.fold.latest_per_key import Folded, FoldJob, LatestPerKey
from compactor.fold.on_spark import OnSpark
from compactor.spark.tasks import TaskFallback
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Folds(Struct, frozen=True):
    """The three implementations, the cheapest first."""

    in_memory: LatestPerKey
    in_tasks: LatestPerKey
    on_spark: LatestPerKey

    @classmethod
    def of(cls, spark: SparkSession, storage: Storage) -> Folds:
        """Returns those that fold files of `storage`."""
        return cls(InMemory(storage), InTasks(spark, storage), OnSpark(spark, storage))


class CheapestFold:
    """Folds (`LatestPerKey`) by the cheapest implementation that a job's budget allows; what it leaves goes to Spark.

    `work` names what its jobs do in log lines. Once `stopped` returns True, nothing is tried again. For one thread.
    `implementation` names the one that was used last (`local`, `tasks` or `spark`), `fallback` says if tasks are used.
    """

    def __init__(self, folds: Folds, work: str, stopped: Callable[[], bool]) -> None:
        self._folds = folds
        self.fallback = TaskFallback(work, stopped)
        # "" before the first fold.
        self.implementation = ""

    def run(self, job: FoldJob) -> Folded:
        """See `LatestPerKey.run`; no part of the job is left."""
        if job.budget.here.fits(job.ranges):
            self.implementation = "local"
            done = self._folds.in_memory.run(job)
        elif self.fallback.uses_tasks:
            self.implementation = "tasks"
            done = self._by_tasks(job)
        else:
            done = Folded([], job)
        if done.left is None:
            return done
        self.implementation = "spark"
        return Folded([*done.rows, *self._folds.on_spark.run(done.left).rows])

    def _by_tasks(self, job: FoldJob) -> Folded:
        """Folds in tasks. If a task's process ends and the job may be done again, all of the job is left."""
        try:
            return self._folds.in_tasks.run(job)
        except Exception as error:
            if not job.is_repeatable or not self.fallback.give_up(error):
                raise
        return Folded([], job)
