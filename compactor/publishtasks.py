"""Publishing what a task's memory holds: a task for each bucket reads its files, folds them with Arrow, and sends.

Nothing is shuffled between them, and nothing crosses into Spark's JVM: on Spark the fold of as much takes longer than
sending it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from compactor import localfold, record
from compactor.faults import tagging, unwrapping
from compactor.publish import SENT, BucketPlan, Due, Publisher, Sent, complete, sent_rows
from compactor.reading import Slice
from compactor.room import TASKS
from compactor.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEFT: Final = "left"
"""The bucket of a plan that its task has not begun; in place of an answer."""

_ANSWERS: Final = pa.schema([*SENT, pa.field(_LEFT, pa.int32())])


def send(
    spark: SparkSession, storage: Storage, due: Sequence[Due], plans: Sequence[BucketPlan], publisher: Publisher
) -> tuple[tuple[Sent, ...], tuple[BucketPlan, ...]]:
    """Steps 6 to 11 for those of `plans` whose part of `due` a task can hold: what was sent, and the plans left.

    Left is also a plan with a file that is not, byte for byte, what was written: what is damaged in it may be no
    concern of this plan, and only Spark reads around it. Raises what the publisher raises, as it was raised;
    FoldError where an answer is missing.
    """
    slices: dict[int, list[Slice]] = {plan.bucket: [] for plan in plans}
    for one in due:
        slices[one.bucket].append(one.slice)
    room = TASKS.shared(max(1, min(len(plans), spark.sparkContext.defaultParallelism)))
    mine = [(plan, slices[plan.bucket]) for plan in plans if room.holds(slices[plan.bucket])]
    if not mine:
        return (), tuple(plans)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tagging():
            for number in (number for batch in batches for number in batch["id"].to_pylist()):
                plan, own = mine[number]
                yield _publish(storage, plan, own, publisher)

    with unwrapping():
        frame = spark.range(0, len(mine), 1, len(mine)).mapInArrow(task, record.ddl(_ANSWERS))
        rows = [row.asDict() for row in frame.collect()]
    left = {row[_LEFT] for row in rows} | {plan.bucket for plan in plans} - {plan.bucket for plan, _ in mine}
    sent = [Sent(**{name: row[name] for name in SENT.names}) for row in rows if row[_LEFT] is None]
    done = complete([plan for plan in plans if plan.bucket not in left], sent)
    return done, tuple(plan for plan in plans if plan.bucket in left)


def _publish(storage: Storage, plan: BucketPlan, slices: Sequence[Slice], publisher: Publisher) -> pa.RecordBatch:
    """The task of one bucket: rows of _ANSWERS."""
    files = localfold.load(storage, slices)
    if files is None:
        return pa.RecordBatch.from_pylist([{_LEFT: plan.bucket}], schema=_ANSWERS)
    folded = localfold.latest(files, slices)
    del files
    sent = publisher.publish(plan, localfold.batches(folded))
    return pa.RecordBatch.from_pylist(sent_rows(sent), schema=_ANSWERS)
