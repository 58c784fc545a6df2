"""Publishing with a task for each bucket: it reads its files, folds them with Arrow, and sends.

What its memory holds it folds there; of more it reads the keys first (`twopass`), and the rest while it sends. Nothing
is shuffled, and nothing crosses into Spark's JVM: on Spark the fold of as much takes longer than sending it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from compactor import localfold, record, sparktasks, twopass
from compactor.bunches import in_order
from compactor.errors import DEFECT, FoldError
from compactor.lastkeys import MACHINE, KeyRoom
from compactor.publish import SENT, BucketPlan, Due, Publisher, Sent, complete, sent_rows
from compactor.reading import Slice
from compactor.room import READ, TASKS, Room
from compactor.storage import Storage
from compactor.twopass import Logs
from compactor.wants import files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEFT: Final = "left"
"""The bucket of a plan that its task has not begun; in place of an answer."""

_ANSWERS: Final = pa.schema([*SENT, pa.field(_LEFT, pa.int32())])


def send(
    spark: SparkSession, storage: Storage, due: Sequence[Due], plans: Sequence[BucketPlan], publisher: Publisher
) -> tuple[tuple[Sent, ...], tuple[BucketPlan, ...]]:
    """Steps 6 to 11 for those of `plans` whose part of `due` a task can fold: what was sent, and the plans left.

    Left is also a plan with a file that is not, byte for byte, what was written: what is damaged in it may be no
    concern of this plan, and only Spark reads around it. Raises what the publisher raises, as it was raised;
    FoldError where an answer is missing.
    """
    slices: dict[int, list[Slice]] = {plan.bucket: [] for plan in plans}
    for one in due:
        slices[one.bucket].append(one.slice)
    tasks = max(1, min(len(plans), spark.sparkContext.defaultParallelism))
    room, keys = TASKS.shared(tasks), MACHINE.shared(tasks)
    mine = [(plan, slices[plan.bucket]) for plan in plans if READ.shared(tasks).holds(slices[plan.bucket])]

    def task(number: int) -> Iterator[pa.RecordBatch]:
        plan, own = mine[number]
        yield _published(plan, _folded(storage, own, room, keys), publisher)

    rows = sparktasks.run(spark, len(mine), task, _ANSWERS)
    left = {row[_LEFT] for row in rows} | {plan.bucket for plan in plans} - {plan.bucket for plan, _ in mine}
    sent = [Sent(**{name: row[name] for name in SENT.names}) for row in rows if row[_LEFT] is None]
    done = complete([plan for plan in plans if plan.bucket not in left], sent)
    return done, tuple(plan for plan in plans if plan.bucket in left)


def _folded(storage: Storage, slices: Sequence[Slice], room: Room, keys: KeyRoom) -> Iterator[pa.RecordBatch] | None:
    """What is left of `slices` (record.RUN), by slice and offset; None where this task cannot tell, or should not."""
    if not room.holds(slices):
        return in_two_passes(storage, slices, keys)
    files = localfold.load(storage, slices)
    return None if files is None else localfold.batches(localfold.latest(files, slices))


def in_two_passes(storage: Storage, slices: Sequence[Slice], keys: KeyRoom) -> Iterator[pa.RecordBatch] | None:
    """Log by log, as they are sent; the first pass of all of them is over before anything is."""
    if not twopass.sound(Logs(storage=storage, slices=slices, paths=[*files_of(slices)])):
        return None
    found = []
    for one in slices:
        paths = in_order([one])
        logs = None if paths is None else Logs(storage=storage, slices=[one], paths=paths)
        which = None if logs is None else twopass.last(logs, keys)
        if logs is None or which is None:
            return None
        found.append((logs, which))
    return (batch for logs, which in found for batch in _rising(logs, twopass.kept(logs, which)))


def _rising(logs: Logs, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`batches` (record.RUN) of one log; FoldError where offsets do not rise, as positions would then fall."""
    newest = -1
    for batch in batches:
        offsets = batch["offset"].to_numpy()
        if (np.diff(offsets, prepend=newest) <= 0).any():
            raise FoldError(f"{logs.slices[0].tp}: offsets do not rise above {newest} in what is sent.", DEFECT)
        newest = offsets[-1] if len(offsets) else newest
        yield batch.select(record.RUN.names)


def _published(plan: BucketPlan, records: Iterator[pa.RecordBatch] | None, publisher: Publisher) -> pa.RecordBatch:
    """Rows of _ANSWERS."""
    if records is None:
        return pa.RecordBatch.from_pylist([{_LEFT: plan.bucket}], schema=_ANSWERS)
    return pa.RecordBatch.from_pylist(sent_rows(publisher.publish(plan, records)), schema=_ANSWERS)
