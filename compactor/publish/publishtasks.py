"""Publishing with a task for each bucket: it reads its files, folds them with Arrow, and sends.

What its memory holds it folds there; of more it reads the keys first (`twopass`), and the rest while it sends. Nothing
is shuffled, and nothing crosses into Spark's JVM: on Spark the fold of as much takes longer than sending it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from compactor.fold import in_memory, two_pass
from compactor.fold.memory_budget import KEYS, READ, TASKS, MemoryBudget, OffsetMapBudget
from compactor.model import record
from compactor.model.publish_plan import PublishPlan, PublishResult
from compactor.ports import Publisher
from compactor.publish.plan import SENT, Due, complete, sent_rows
from compactor.runs.scan import OffsetRange
from compactor.spark import tasks as sparktasks
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEFT: Final = "left"
"""The bucket of a plan that its task has not begun; in place of an answer."""

_ANSWERS: Final = pa.schema([*SENT, pa.field(_LEFT, pa.int32())])


def send(
    spark: SparkSession, storage: Storage, due: Sequence[Due], plans: Sequence[PublishPlan], publisher: Publisher
) -> tuple[tuple[PublishResult, ...], tuple[PublishPlan, ...]]:
    """Steps 6 to 11 for those of `plans` whose part of `due` a task can fold: what was sent, and the plans left.

    Left is also a plan with a file that is not, byte for byte, what was written: what is damaged in it may be no
    concern of this plan, and only Spark reads around it. Raises what the publisher raises, as it was raised;
    FoldError where an answer is missing.
    """
    slices: dict[int, list[OffsetRange]] = {plan.bucket: [] for plan in plans}
    for one in due:
        slices[one.bucket].append(one.slice)
    tasks = max(1, min(len(plans), spark.sparkContext.defaultParallelism))
    room, readable, keys = TASKS.shared(tasks), READ.shared(tasks), KEYS.shared(tasks)
    mine = [(plan, slices[plan.bucket]) for plan in plans if readable.holds(slices[plan.bucket])]

    def task(number: int) -> list[pa.RecordBatch]:
        plan, own = mine[number]
        return [_answer(plan, _folded(storage, own, room, keys), publisher)]

    rows = sparktasks.run(spark, len(mine), task, _ANSWERS)
    left = {row[_LEFT] for row in rows} | {plan.bucket for plan in plans} - {plan.bucket for plan, _ in mine}
    sent = [PublishResult(**{name: row[name] for name in SENT.names}) for row in rows if row[_LEFT] is None]
    done = complete([plan for plan in plans if plan.bucket not in left], sent)
    return done, tuple(plan for plan in plans if plan.bucket in left)


def _folded(
    storage: Storage, slices: Sequence[OffsetRange], room: MemoryBudget, keys: OffsetMapBudget
) -> Iterator[pa.RecordBatch] | None:
    """What is left of `slices` (record.RUN), by slice and offset; None where this task cannot tell, or should not."""
    if room.holds(slices):
        files = in_memory.load(storage, slices)
        return None if files is None else in_memory.batches(in_memory.latest(files, slices))
    found = two_pass.latest(storage, slices, keys)
    return None if found is None else (batch.select(record.RUN.names) for batch in found)


def _answer(plan: PublishPlan, records: Iterator[pa.RecordBatch] | None, publisher: Publisher) -> pa.RecordBatch:
    """Rows of _ANSWERS."""
    if records is None:
        return pa.RecordBatch.from_pylist([{_LEFT: plan.bucket}], schema=_ANSWERS)
    return pa.RecordBatch.from_pylist(sent_rows(publisher.publish(plan, records)), schema=_ANSWERS)
