"""Publishing with a task for each bucket: it reads its files, folds them with Arrow, and sends.

What its memory holds it folds there; of more it reads the keys first (`twopass`), and the rest while it sends. Nothing
is shuffled, and nothing crosses into Spark's JVM: on Spark the fold of as much takes longer than sending it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from compactor import localfold, record, twopass
from compactor.bunches import in_order
from compactor.faults import tagging, unwrapping
from compactor.lastkeys import MACHINE, KeyRoom
from compactor.publish import SENT, BucketPlan, Due, Publisher, Sent, complete, sent_rows
from compactor.reading import Slice
from compactor.room import READ, TASKS, Room
from compactor.storage import Storage
from compactor.twopass import Logs

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
    if not mine:
        return (), tuple(plans)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tagging():
            for number in (number for batch in batches for number in batch["id"].to_pylist()):
                plan, own = mine[number]
                records = _folded(storage, own, room, keys)
                yield _published(plan, records, publisher)

    with unwrapping():
        frame = spark.range(0, len(mine), 1, len(mine)).mapInArrow(task, record.ddl(_ANSWERS))
        rows = [row.asDict() for row in frame.collect()]
    left = {row[_LEFT] for row in rows} | {plan.bucket for plan in plans} - {plan.bucket for plan, _ in mine}
    sent = [Sent(**{name: row[name] for name in SENT.names}) for row in rows if row[_LEFT] is None]
    done = complete([plan for plan in plans if plan.bucket not in left], sent)
    return done, tuple(plan for plan in plans if plan.bucket in left)


def _folded(storage: Storage, slices: Sequence[Slice], room: Room, keys: KeyRoom) -> Iterator[pa.RecordBatch] | None:
    """What is left of `slices` (record.RUN), by slice and offset; None where this task cannot tell, or should not."""
    if not room.holds(slices):
        return _in_two_passes(storage, slices, keys)
    files = localfold.load(storage, slices)
    return None if files is None else localfold.batches(localfold.latest(files, slices))


def _in_two_passes(storage: Storage, slices: Sequence[Slice], keys: KeyRoom) -> Iterator[pa.RecordBatch] | None:
    """Log by log, as they are sent; the first pass of all of them is over before anything is."""
    ordered = [(one, in_order([one])) for one in slices]
    logs = [Logs(storage=storage, slices=[one], paths=paths) for one, paths in ordered if paths is not None]
    if len(logs) < len(slices) or not all(map(twopass.sound, logs)):
        return None
    found = [(one, twopass.last(one, keys)) for one in logs]
    which = [(one, rows) for one, rows in found if rows is not None]
    if len(which) < len(found):
        return None
    return (batch.select(record.RUN.names) for one, rows in which for batch in twopass.kept(one, rows))


def _published(plan: BucketPlan, records: Iterator[pa.RecordBatch] | None, publisher: Publisher) -> pa.RecordBatch:
    """Rows of _ANSWERS."""
    if records is None:
        return pa.RecordBatch.from_pylist([{_LEFT: plan.bucket}], schema=_ANSWERS)
    return pa.RecordBatch.from_pylist(sent_rows(publisher.publish(plan, records)), schema=_ANSWERS)
