"""Rewrites runs whose keys a task's memory holds: a task for a bunch of logs, and nothing shuffled between them.

On Spark, which can fold any number of keys, the same takes several times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from compactor import parts, record, runfile
from compactor.bunches import bunches
from compactor.errors import DEFECT, FoldError
from compactor.faults import tagging, unwrapping
from compactor.keep import Keep
from compactor.lastkeys import MACHINE, KeyRoom
from compactor.parts import Part
from compactor.reading import Slice
from compactor.runfile import RunTarget
from compactor.storage import Storage
from compactor.throttle import Pace
from compactor.twopass import Logs, every, kept, last, sound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS: Final = 16_000_000
"""The records that all tasks of a machine look at together: a task's time goes by them, and of each it holds a byte."""

BYTES: Final = 8 << 30
"""The bytes of those records: a log of more is cut into pieces by Spark, and rewritten by all tasks."""

_BUNCH: Final = "bunch"
_LEFT: Final = "left"
"""1 in the last row of a bunch that its task has left to others, 0 where it was done; null in rows of parts."""

_ANSWERS: Final = pa.schema([*parts.PARTS, pa.field(_BUNCH, pa.int32()), pa.field(_LEFT, pa.int32())])


def rewrite(
    spark: SparkSession,
    storage: Storage,
    slices: Sequence[Slice],
    target: RunTarget,
    keep: Keep,
    failpoint: str,
    limit: int | None = None,
) -> tuple[tuple[Part, ...] | None, ...]:
    """Of each of `slices` what `keep` leaves, as `foldjob.rewrite` gives it; None for those that it is left to.

    Left is what is too much for a task, and whatever lies in a file that is not, byte for byte, what was written.
    Raises StorageError, FoldError.
    """
    cores = spark.sparkContext.defaultParallelism
    tasks = max(1, min(cores, len(slices)))
    plan = bunches(slices, target.max_bytes, cores, RECORDS // tasks, BYTES // tasks)
    pace = Pace.shared(limit, cores)
    work = [
        (Logs(storage=storage, slices=[slices[log] for log in one.logs], paths=one.paths, pace=pace), keep.of(one.logs))
        for one in plan
    ]
    room = MACHINE.shared(tasks)
    if not work:
        return (None,) * len(slices)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tagging():
            for number in (number for batch in batches for number in batch["id"].to_pylist()):
                logs, own = work[number]
                yield _answer(number, _rewritten(logs, own, room, target, failpoint))

    with unwrapping():
        frame = spark.range(0, len(work), 1, len(work)).mapInArrow(task, record.ddl(_ANSWERS))
        rows = [row.asDict() for row in frame.collect()]
    left = {row[_BUNCH]: bool(row[_LEFT]) for row in rows if row[_LEFT] is not None}
    if len(left) < len(work):
        raise FoldError(f"Of {len(work)} tasks of a fold only {len(left)} have told that they are done.", DEFECT)
    done = {log for number, one in enumerate(plan) if not left[number] for log in one.logs}
    written = [parts.from_row(row) for row in rows if row[_LEFT] is None]
    return tuple(parts.within(one, written) if log in done else None for log, one in enumerate(slices))


def _rewritten(logs: Logs, keep: Keep, room: KeyRoom, target: RunTarget, failpoint: str) -> list[Part] | None:
    """A part for each file and log that was written; None, and no file, where it is left."""
    which = None if not sound(logs) else last(logs, room) if keep.by_key else every(logs)
    if which is None:
        return None
    left = (keep.of_batch(batch).select(record.RUN.names) for batch in kept(logs, which))
    pieces = (piece for batch in left for piece in runfile.cut(batch))
    return list(runfile.write(logs.pace.kept(pieces), target, failpoint))


def _answer(number: int, written: Sequence[Part] | None) -> pa.RecordBatch:
    """Rows of _ANSWERS: a part for each file and log, then whether the bunch is left."""
    rows = parts.to_batch(written or ()).to_pylist()
    end = {_LEFT: int(written is None)}
    return pa.RecordBatch.from_pylist([{**row, _BUNCH: number} for row in (*rows, end)], schema=_ANSWERS)
