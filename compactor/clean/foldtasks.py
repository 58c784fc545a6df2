"""Rewrites runs in tasks: each takes a bunch of whole logs, in two passes, and nothing is shuffled between them.

On Spark, which can fold any amount, the same takes several times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from compactor.clean.rewriteplan import RewritePlan
from compactor.errors import DEFECT, FoldError
from compactor.fold import two_pass
from compactor.fold.bunches import bunches
from compactor.fold.memory_budget import KEYS, OffsetMapBudget
from compactor.fold.throttler import Throttler
from compactor.fold.two_pass import Logs
from compactor.model import record
from compactor.runs import file_stats, writer
from compactor.runs.file_stats import FileStats
from compactor.runs.scan import files_of
from compactor.spark import tasks as sparktasks
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS: Final = 16_000_000
"""How many records the bunches that a machine's tasks work on have together: with more, keys might go to disk.

A log that has more records is a bunch by itself.
"""

_BUNCH: Final = "bunch"
_LEFT: Final = "left"
"""1 in the last row of a bunch that its task has left to others, 0 where it was done; null in rows of parts."""

_DAMAGED: Final = pa.schema([pa.field("path", pa.string())])

_ANSWERS: Final = pa.schema([*file_stats.FILE_STATS, pa.field(_BUNCH, pa.int32()), pa.field(_LEFT, pa.int32())])


def rewrite(spark: SparkSession, storage: Storage, what: RewritePlan) -> tuple[tuple[FileStats, ...] | None, ...]:
    """The parts that were written of each slice, as `foldjob.rewrite` gives them; None for slices left to Spark's fold.

    Those are slices with more keys than a task has room for, in memory and on disk, and slices of which a file is not,
    byte for byte, what was written. Raises StorageError, FoldError.
    """
    damaged = _damaged(spark, storage, what)
    sound = [log for log, one in enumerate(what.slices) if damaged.isdisjoint(files_of([one]))]
    written = dict(zip(sound, _by_tasks(spark, storage, what.of(sound)), strict=True))
    return tuple(written.get(log) for log in range(len(what.slices)))


def _damaged(spark: SparkSession, storage: Storage, what: RewritePlan) -> set[str]:
    """The paths of files that are not what was written. Each file is read once, also where several tasks need it."""
    cores = spark.sparkContext.defaultParallelism
    files = sorted(files_of(what.slices).values(), key=lambda file: file.file_bytes)
    pace = Throttler.shared(what.limit, cores)

    def task(number: int) -> list[pa.RecordBatch]:
        found = [file.path for file in files[number::cores] if not two_pass.sound(storage, [file], pace)]
        return [pa.RecordBatch.from_pydict({"path": found}, _DAMAGED)]

    return {row["path"] for row in sparktasks.run(spark, min(cores, len(files)), task, _DAMAGED)}


def _by_tasks(spark: SparkSession, storage: Storage, what: RewritePlan) -> tuple[tuple[FileStats, ...] | None, ...]:
    """The same, of slices whose files are all sound."""
    cores = spark.sparkContext.defaultParallelism
    tasks = max(1, min(cores, len(what.slices)))
    plan = bunches(what.slices, what.target.max_bytes, cores, RECORDS // tasks)
    pace, room = Throttler.shared(what.limit, cores), KEYS.shared(tasks)
    own = [what.of(one.logs) for one in plan]

    def task(number: int) -> list[pa.RecordBatch]:
        logs = Logs(storage=storage, slices=own[number].slices, paths=plan[number].paths, pace=pace)
        return [_answer(number, _rewritten(logs, own[number], room))]

    rows = sparktasks.run(spark, len(plan), task, _ANSWERS)
    left = {row[_BUNCH]: bool(row[_LEFT]) for row in rows if row[_LEFT] is not None}
    if len(left) < len(plan):
        silent = sorted(str(one.tp) for number in {*range(len(plan))} - left.keys() for one in own[number].slices)
        raise FoldError(f"Tasks of a fold have not told that they are done: those of {', '.join(silent)}.", DEFECT)
    done = {log for number, one in enumerate(plan) if not left[number] for log in one.logs}
    written = file_stats.by_range(what.slices, [file_stats.from_row(row) for row in rows if row[_LEFT] is None])
    return tuple(found if log in done else None for log, found in enumerate(written))


def _rewritten(logs: Logs, what: RewritePlan, room: OffsetMapBudget) -> list[FileStats] | None:
    """A part for each file and log that was written; None, and no file, where it is left."""
    found = _found(logs, what, room)
    if found is None:
        return None
    left = (what.keep.of_batch(batch).select(record.RUN.names) for batch in found)
    pieces = (piece for batch in left for piece in writer.cut(batch))
    written = writer.write(logs.pace.kept(pieces), what.target, what.failpoint)  # the limit counts what is written too
    return list(written)


def _found(logs: Logs, what: RewritePlan, room: OffsetMapBudget) -> Iterator[pa.RecordBatch] | None:
    if not what.keep.by_key:
        return two_pass.every(logs)
    which = two_pass.last(logs, room)
    return None if which is None else two_pass.kept(logs, which)


def _answer(number: int, written: Sequence[FileStats] | None) -> pa.RecordBatch:
    """Rows of _ANSWERS: a part for each file and log, then whether the bunch is left."""
    rows = (*file_stats.rows_of(written or ()), {_LEFT: int(written is None)})
    return pa.RecordBatch.from_pylist([{**row, _BUNCH: number} for row in rows], schema=_ANSWERS)
