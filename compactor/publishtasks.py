"""Publishing what a task's memory holds: a task for each bucket reads its files, folds them with Arrow, and sends.

Nothing is shuffled between them, and nothing crosses into Spark's JVM: on Spark the fold of as much takes longer than
sending it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from msgspec import structs

from compactor import localfold, record
from compactor.faults import tagging, unwrapping
from compactor.publish import TASKS, BucketPlan, Due, Publisher, Sent, complete, fits
from compactor.reading import Slice
from compactor.record import RUN
from compactor.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS: Final = 10_000
_BUCKET: Final = pa.field("bucket", pa.int32())
SENT: Final = pa.schema(
    [pa.field(name, pa.string() if name == "topic" else pa.int64()) for name in Sent.__struct_fields__]
)
"""What was sent, as a task tells it."""

_ANSWERS: Final = pa.schema([_BUCKET, *SENT])


def send(
    spark: SparkSession, storage: Storage, due: Sequence[Due], plans: Sequence[BucketPlan], publisher: Publisher
) -> tuple[tuple[Sent, ...], tuple[BucketPlan, ...]]:
    """Steps 6 to 11 for those of `plans` whose part of `due` a task can hold: what was sent, and the plans left.

    Left is also a plan with a file that is not, byte for byte, what was written: what is damaged in it may be no
    concern of this plan, and only Spark reads around it. Raises what the publisher raises, as it was raised;
    FoldError where a bucket answered for some of its partitions only.
    """
    room = TASKS.shared(max(1, min(len(plans), spark.sparkContext.defaultParallelism)))
    dues = {plan.bucket: [one for one in due if one.bucket == plan.bucket] for plan in plans}
    mine = [plan for plan in plans if fits(dues[plan.bucket], room)]
    slices = {plan.bucket: [one.slice for one in dues[plan.bucket]] for plan in mine}
    if not mine:
        return (), tuple(plans)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tagging():
            for number in (number for batch in batches for number in batch["id"].to_pylist()):
                yield _publish(storage, mine[number], slices[mine[number].bucket], publisher)

    with unwrapping():
        frame = spark.range(0, len(mine), 1, len(mine)).mapInArrow(task, record.ddl(_ANSWERS))
        rows = [row.asDict() for row in frame.collect()]
    answered = {row.pop("bucket") for row in rows}
    sent = complete([plan for plan in mine if plan.bucket in answered], [Sent(**row) for row in rows])
    return sent, tuple(plan for plan in plans if plan.bucket not in answered)


def _publish(storage: Storage, plan: BucketPlan, slices: Sequence[Slice], publisher: Publisher) -> pa.RecordBatch:
    """The task of one bucket: rows of _ANSWERS, none where its files are not what was written."""
    files = localfold.load(storage, slices)
    if files is None:
        return pa.RecordBatch.from_pylist([], schema=_ANSWERS)
    folded = localfold.latest(files, slices).select(RUN.names)
    del files
    sent = publisher.publish(plan, iter(folded.to_batches(_ROWS)))
    return pa.RecordBatch.from_pylist([{"bucket": plan.bucket, **structs.asdict(one)} for one in sent], schema=_ANSWERS)
