"""How full folds and merges rewrite runs: in tasks, in two passes; what is too much for one by Spark's fold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from compactor.clean import foldjob, foldtasks
from compactor.clean.rewriteplan import RewritePlan
from compactor.runs.file_stats import FileStats
from compactor.spark.taskfallback import TaskFallback
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Rewriter:
    """Carries rewriting out, in one of two ways, for one thread. Once `stopping` says so, nothing is tried again."""

    def __init__(self, spark: SparkSession, storage: Storage, stopping: Callable[[], bool] = lambda: False) -> None:
        self._spark = spark
        self._storage = storage
        self._fallback = TaskFallback("rewriting", stopping)

    def rewrite(self, what: RewritePlan) -> tuple[tuple[FileStats, ...], ...]:
        """The parts that were written of each slice, by offset. Raises StorageError, FoldError."""
        done = self._by_tasks(what)
        left = [log for log, parts in enumerate(done) if parts is None]
        if left:
            by_spark = dict(zip(left, foldjob.rewrite(self._spark, self._storage, what.of(left)), strict=True))
        return tuple(by_spark[log] if parts is None else parts for log, parts in enumerate(done))

    def _by_tasks(self, what: RewritePlan) -> tuple[tuple[FileStats, ...] | None, ...]:
        """None for what is left; for everything once tasks are given up.

        Files of what failed belong to nobody, and a vacuum takes them.
        """
        if self._fallback.tasks:
            try:
                return foldtasks.rewrite(self._spark, self._storage, what)
            except Exception as error:
                if not self._fallback.give_up(error):
                    raise
        return (None,) * len(what.slices)
