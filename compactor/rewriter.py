"""All rewriting of runs: in tasks that hold what they need in memory, and by Spark's fold for everything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import structlog

from compactor import foldjob, foldtasks
from compactor.brokenoff import of_its_process
from compactor.errors import KeyfoldError
from compactor.keep import Keep
from compactor.parts import Part
from compactor.reading import Slice
from compactor.runfile import RunTarget
from compactor.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger()


class Rewriter:
    """Carries rewriting out, in one of two ways, for one thread. Once `stopping` says so, nothing is tried again."""

    def __init__(self, spark: SparkSession, storage: Storage, stopping: Callable[[], bool] = lambda: False) -> None:
        self._spark = spark
        self._stopping = stopping
        self._storage = storage
        self._in_tasks = True

    def rewrite(
        self, slices: Sequence[Slice], target: RunTarget, keep: Keep, failpoint: str, limit: int | None = None
    ) -> tuple[tuple[Part, ...], ...]:
        """What `keep` leaves of each of `slices`, in new files of `target`; each one's parts, by offset.

        `limit`: bytes per second. Raises StorageError, FoldError.
        """
        done = self._by_tasks(slices, target, keep, failpoint, limit)
        left = [log for log, parts in enumerate(done) if parts is None]
        if left:
            rest = foldjob.rewrite(
                self._spark, self._storage, [slices[log] for log in left], target, keep.of(left), failpoint, limit
            )
            by_spark = dict(zip(left, rest, strict=True))
        return tuple(by_spark[log] if parts is None else parts for log, parts in enumerate(done))

    def _by_tasks(
        self, slices: Sequence[Slice], target: RunTarget, keep: Keep, failpoint: str, limit: int | None
    ) -> tuple[tuple[Part, ...] | None, ...]:
        """None for what is left; for everything once a process has ended, perhaps for want of memory: Spark spills.

        Files of what failed belong to nobody, and a vacuum takes them.
        """
        if self._in_tasks:
            try:
                return foldtasks.rewrite(self._spark, self._storage, slices, target, keep, failpoint, limit)
            except KeyfoldError:
                raise  # a full disk of the store is no process's end
            except Exception as error:
                if self._stopping() or not of_its_process(error):
                    raise
                _log.warning("fold tasks given up for Spark's fold, as a process ended", error=str(error))
                self._in_tasks = False
        return (None,) * len(slices)
