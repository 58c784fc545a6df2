"""The publish job: folds what is due and hands it, by bucket and in offset order, to a publisher.

A bucket is one task, whatever it holds: its publisher also has positions to commit where no record is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, structs

from compactor import fold, record
from compactor.errors import FoldError
from compactor.faults import tagging, unwrapping
from compactor.log import PartitionLog
from compactor.reading import between
from compactor.record import OfPartition
from compactor.state import State
from compactor.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class Target(OfPartition, Struct, frozen=True, kw_only=True):
    """What one partition is to be sent: the survivors of [start, end), and its rejected records.

    `found` is the position that the group must still hold when the task begins (None: none);
    `output_offset` the high watermark that its metadata says. start == end commits the position again.
    """

    topic: str
    partition: int
    bucket: int
    output: str | None
    start: int
    end: int
    found: int | None = None
    output_offset: int | None = None


class BucketPlan(Struct, frozen=True, kw_only=True):
    """What one transactional id does next, and on whose behalf."""

    bucket: int
    epoch: int
    catalog_id: str
    targets: tuple[Target, ...]


class Sent(OfPartition, Struct, frozen=True, kw_only=True):
    """One target, sent completely; `bytes` by `record.measure`, `refused` records by the broker."""

    topic: str
    partition: int
    end: int
    output_offset: int | None = None
    records: int = 0
    bytes: int = 0
    dead_letters: int = 0
    refused: int = 0
    transactions: int = 0


class Publisher(Protocol):
    """Sends a bucket's records; it can be pickled, and runs in a Spark task or, for a few records, without."""

    def publish(self, plan: BucketPlan, records: Iterator[pa.RecordBatch]) -> Sequence[Sent]:
        """Sends `records` (record.RUN, by partition and offset, rejected ones too) and commits the positions.

        Gives one Sent for each target, also for those without a record.
        """
        ...


_DEFECT: Final = "This is a defect of keyfold; what is in doubt is read back before anything else is sent."
_BUCKET: Final = "bucket"
_LOG: Final = fold.SCAN.field(fold.LOG)
_JOB: Final = record.RUN.append(pa.field(_BUCKET, pa.int32()))
_SENT: Final = pa.schema(
    [pa.field(name, pa.string() if name == "topic" else pa.int64()) for name in Sent.__struct_fields__]
)


def send(
    spark: SparkSession,
    storage: Storage,
    state: State,
    plans: Sequence[BucketPlan],
    buckets: int,
    publisher: Publisher,
) -> tuple[Sent, ...]:
    """Steps 6 to 11 for every plan: all folded in one job, one task for each of `buckets`.

    Raises what the publisher raises, as it was raised; FoldError where an answer is missing.
    """
    plans = [plan for plan in plans if plan.targets]
    if not plans:
        return ()
    by_bucket = {plan.bucket: plan for plan in plans}

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tagging():
            yield from _publish(by_bucket, batches, publisher)

    frame = _ordered(_records(spark, storage, state, plans), buckets)
    with unwrapping():
        rows = frame.mapInArrow(task, record.ddl(_SENT)).collect()
    return _complete(plans, [Sent(**row.asDict()) for row in rows])


def _records(spark: SparkSession, storage: Storage, state: State, plans: Sequence[BucketPlan]) -> DataFrame:
    """Every record that is due with its bucket; and for each plan a row without topic, which begins its task."""
    logs = state.by_partition()
    due = [target for plan in plans for target in plan.targets if target.start < target.end]
    targets = [target for target in due if _is_sent(target, logs[target.tp])]
    slices = [between(logs[target.tp], target.start, target.end) for target in targets]
    records = fold.latest(fold.scan(spark, storage, slices))
    bucket = _chosen([target.bucket for target in targets])
    marks = spark.createDataFrame(
        pa.Table.from_pylist([{_BUCKET: plan.bucket, fold.LOG: -1} for plan in plans], _JOB.append(_LOG))
    )
    return records.withColumn(_BUCKET, bucket).select(*marks.columns).unionAll(marks)


def _is_sent(target: Target, log: PartitionLog) -> bool:
    """Whether any record of `target` leaves: without an output topic only rejected ones do."""
    return target.output is not None or any(run.rejected for run in between(log, target.start, target.end).runs)


def _chosen(buckets: Sequence[int]) -> Column:
    """The bucket of each slice, by the slice's number."""
    from pyspark.sql.functions import expr

    return expr(f"cast(array({', '.join(map(str, buckets)) or '0'})[{fold.LOG}] as int)")


def _ordered(frame: DataFrame, buckets: int) -> DataFrame:
    """One Spark partition for each bucket, in it the logs one after the other, by offset; its mark comes first."""
    return frame.repartitionById(buckets, _BUCKET).sortWithinPartitions(fold.LOG, "offset").select(*_JOB.names)


def _publish(
    plans: dict[int, BucketPlan], batches: Iterable[pa.RecordBatch], publisher: Publisher
) -> Iterator[pa.RecordBatch]:
    """The task: one bucket's records go to the publisher, its answers come back as rows of _SENT."""
    found = iter(batches)
    first = next(found, None)
    while first is not None and first.num_rows == 0:
        first = next(found, None)
    if first is None:
        return
    plan = plans[first[_BUCKET][0].as_py()]
    sent = publisher.publish(plan, _of_bucket(plan, first, found))
    yield pa.RecordBatch.from_pylist([structs.asdict(one) for one in sent], schema=_SENT)


def _of_bucket(plan: BucketPlan, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in chain([first.slice(1)], rest):
        if not pc.all(pc.equal(batch[_BUCKET], plan.bucket), min_count=0).as_py():
            raise FoldError(f"The task of bucket {plan.bucket} was given another bucket's records.", _DEFECT)
        if batch.num_rows:
            columns = [batch[field.name].cast(field.type) for field in record.RUN]
            yield pa.RecordBatch.from_arrays(columns, schema=record.RUN)


def _complete(plans: Sequence[BucketPlan], sent: Sequence[Sent]) -> tuple[Sent, ...]:
    """`sent`, if it answers every target once and to its end; FoldError otherwise."""
    asked = sorted((*target.tp, target.end) for plan in plans for target in plan.targets)
    answered = sorted((one.topic, one.partition, one.end) for one in sent)
    if asked != answered:
        wrong = sorted(set(asked) ^ set(answered))
        raise FoldError(f"The publishing tasks did not answer for what they were asked: {wrong[:3]}.", _DEFECT)
    return tuple(sent)
