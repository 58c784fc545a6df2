"""Publishing any amount: folds what is due on Spark and hands it, by bucket and in offset order, to a publisher.

A bucket is one task, whatever it holds: its publisher also has positions to commit where no record is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor.errors import FoldError
from compactor.fold import on_spark
from compactor.model import record
from compactor.model.publish_plan import PublishPlan, PublishResult
from compactor.ports import Publisher
from compactor.publish.plan import READ_BACK, SENT, Due, complete, sent_rows
from compactor.runs.scan import LOG, SCAN
from compactor.spark.errors import tagging, unwrapping
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BUCKET: Final = "bucket"
_LOG: Final = SCAN.field(LOG)
_JOB: Final = record.RUN.append(pa.field(_BUCKET, pa.int32()))


def send(
    spark: SparkSession,
    storage: Storage,
    due: Sequence[Due],
    plans: Sequence[PublishPlan],
    buckets: int,
    publisher: Publisher,
) -> tuple[PublishResult, ...]:
    """Steps 6 to 11 for every plan: all of `due` folded in one job, one task for each of `buckets`.

    Raises what the publisher raises, as it was raised; FoldError where an answer is missing.
    """
    by_bucket = {plan.bucket: plan for plan in plans}

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tagging():
            yield from _publish(by_bucket, batches, publisher)

    frame = _ordered(_records(spark, storage, due, plans), buckets)
    with unwrapping():
        rows = frame.mapInArrow(task, record.ddl(SENT)).collect()
    return complete(plans, [PublishResult(**row.asDict()) for row in rows])


def _records(spark: SparkSession, storage: Storage, due: Sequence[Due], plans: Sequence[PublishPlan]) -> DataFrame:
    """Every record that is due with its bucket; and for each plan a row without topic, which begins its task."""
    records = on_spark.latest(on_spark.scan(spark, storage, [one.slice for one in due]))
    bucket = _chosen([one.bucket for one in due])
    marks = spark.createDataFrame(
        pa.Table.from_pylist([{_BUCKET: plan.bucket, LOG: -1} for plan in plans], _JOB.append(_LOG))
    )
    return records.withColumn(_BUCKET, bucket).select(*marks.columns).unionAll(marks)


def _chosen(buckets: Sequence[int]) -> Column:
    """The bucket of each slice, by the slice's number."""
    from pyspark.sql.functions import expr

    return expr(f"cast(array({', '.join(map(str, buckets)) or '0'})[{LOG}] as int)")


def _ordered(frame: DataFrame, buckets: int) -> DataFrame:
    """One Spark partition for each bucket, in it the logs one after the other, by offset; its mark comes first."""
    return frame.repartitionById(buckets, _BUCKET).sortWithinPartitions(LOG, "offset").select(*_JOB.names)


def _publish(
    plans: dict[int, PublishPlan], batches: Iterable[pa.RecordBatch], publisher: Publisher
) -> Iterator[pa.RecordBatch]:
    """The task: one bucket's records go to the publisher, its answers come back as rows of SENT."""
    found = iter(batches)
    first = next(found, None)
    while first is not None and first.num_rows == 0:
        first = next(found, None)
    if first is None:
        return
    plan = plans[first[_BUCKET][0].as_py()]
    sent = publisher.publish(plan, _of_bucket(plan, first, found))
    yield pa.RecordBatch.from_pylist(sent_rows(sent), schema=SENT)


def _of_bucket(plan: PublishPlan, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in chain([first.slice(1)], rest):
        if not pc.all(pc.equal(batch[_BUCKET], plan.bucket), min_count=0).as_py():
            raise FoldError(f"The task of bucket {plan.bucket} was given another bucket's records.", READ_BACK)
        if batch.num_rows:
            columns = [batch[field.name].cast(field.type) for field in record.RUN]
            yield pa.RecordBatch.from_arrays(columns, schema=record.RUN)
