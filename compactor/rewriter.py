"""How full folds and merges rewrite runs: in tasks that hold keys only, what is too much for one by Spark's fold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from compactor import foldjob, foldtasks
from compactor.parts import Part
from compactor.rewriting import Rewriting
from compactor.storage import Storage
from compactor.taskuse import TaskUse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Rewriter:
    """Carries rewriting out, in one of two ways, for one thread. Once `stopping` says so, nothing is tried again."""

    def __init__(self, spark: SparkSession, storage: Storage, stopping: Callable[[], bool] = lambda: False) -> None:
        self._spark = spark
        self._storage = storage
        self._tasks = TaskUse("folds", stopping)

    def rewrite(self, what: Rewriting) -> tuple[tuple[Part, ...], ...]:
        """The parts that were written of each slice, by offset. Raises StorageError, FoldError."""
        done = self._by_tasks(what)
        left = [log for log, parts in enumerate(done) if parts is None]
        if left:
            by_spark = dict(zip(left, foldjob.rewrite(self._spark, self._storage, what.of(left)), strict=True))
        return tuple(by_spark[log] if parts is None else parts for log, parts in enumerate(done))

    def _by_tasks(self, what: Rewriting) -> tuple[tuple[Part, ...] | None, ...]:
        """None for what is left; for everything once tasks are given up.

        Files of what failed belong to nobody, and a vacuum takes them.
        """
        if self._tasks.holds:
            try:
                return foldtasks.rewrite(self._spark, self._storage, what)
            except Exception as error:
                if not self._tasks.is_given_up(error):
                    raise
        return (None,) * len(what.slices)
