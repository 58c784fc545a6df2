"""Inputs of the engine: records as dicts, DataFrames as the source gives them, states, plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from msgspec.structs import replace

from compactor.ingest import ingest
from compactor.ingest.appends import Batch, appends
from compactor.ingest.ingest import WRITTEN, Intake, write_level0
from compactor.model import record
from compactor.model.actions import AddPartition, AddTopic, AnyAction, Create, Publish, SetBuckets, TakeOver
from compactor.model.log import OutputPoint, PartitionLog
from compactor.model.publish_plan import PublishPlan, PublishTarget
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, apply
from compactor.runs.writer import RunTarget
from compactor.spark.errors import KEY, tagging
from compactor.storage.local import LocalStorage
from tests.support.local_spark import LocalFrame, source_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]


def row(partition: int, offset: int, key: bytes | None, value: bytes | None, **more: Any) -> Row:
    """Returns a record of the source; topic t, CreateTime, timestamp = offset, no headers unless in `more`."""
    record_dicts = {"topic": "t", "timestamp": offset, "timestamp_type": 0, "headers": []}
    return {**record_dicts, "partition": partition, "offset": offset, "key": key, "value": value, **more}


def range_report(
    partition: int, lo: int, hi: int, records: int, start: int | None = None, topic: str = "t", **truncates: Any
) -> Row:
    """Returns a reading task's report that it has read [lo, hi)."""
    fields = {"topic_id": f"id-{topic}", "lo": lo, "hi": hi, "start": lo if start is None else start}
    return {"topic": topic, "partition": partition, "offset": lo, "range": {**fields, "records": records, **truncates}}


def with_range_reports(rows: Sequence[Row], ends: Mapping[int, tuple[int, int]], topic: str = "t") -> list[Row]:
    """Returns `rows` with the reports of one reading task that read `ends`, partition → [lo, hi)."""
    counts = {partition: sum(one["partition"] == partition for one in rows) for partition in ends}
    return [*rows, *(range_report(one, lo, hi, counts[one], topic=topic) for one, (lo, hi) in ends.items())]


def source_frame(spark: SparkSession, intake: Intake, *tasks: Sequence[Row]) -> DataFrame:
    """Returns a DataFrame each of whose partitions ingests the rows of one of `tasks`."""
    key = KEY

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                with tagging(key):
                    yield from write_level0([source_batch(tasks[number])], intake)

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, record.ddl(WRITTEN))


def gathered(frame: DataFrame) -> Batch:
    """Returns the one portion of a micro-batch."""
    ((_, found),) = ingest.gather(frame).items()
    assert isinstance(found, Batch), found
    return found


def target(
    storage: LocalStorage, prefix: str = "1-job", max_bytes: int = 1 << 27, *, is_indexed: bool = False
) -> RunTarget:
    return RunTarget(storage=storage, prefix=prefix, max_bytes=max_bytes, is_indexed=is_indexed)


def intake(storage: LocalStorage, *, keyed: bool = True, folds: bool = False, is_indexed: bool = False) -> Intake:
    return Intake(target=target(storage, is_indexed=is_indexed), keyed=keyed, folds=folds)


def new_state(partitions: Mapping[int, int], topic: str = "t", buckets: int = 1) -> CatalogState:
    """Returns a state with one topic whose partitions start at the given offsets; p is in bucket p % buckets."""
    actions: list[AnyAction] = [
        Create(catalog_id="cat", connector="c"),
        TakeOver(epoch=1, owner="o"),
        SetBuckets(count=buckets),
        AddTopic(topic=topic, topic_id=f"id-{topic}", output=f"{topic}.compacted", output_id="out-id"),
    ]
    actions += [
        AddPartition(topic=topic, partition=one, bucket=one % buckets, start=start) for one, start in partitions.items()
    ]
    return apply(CatalogState(), actions)


def ingested(
    storage: LocalStorage,
    state: CatalogState,
    tasks: Sequence[Sequence[Row]],
    now_ms: int = 0,
    *,
    is_indexed: bool = False,
) -> CatalogState:
    """Returns `state` after a micro-batch of `tasks`, without Spark; tests/spark/test_ingest.py does it on Spark."""
    into = intake(storage, is_indexed=is_indexed)
    into = replace(into, target=replace(into.target, has_identities=state.key_identity is not None))
    frame = cast("DataFrame", LocalFrame(tasks, into))
    return apply(state, appends(state, gathered(frame), now_ms))


def published(state: CatalogState, ends: Mapping[int, int], topic: str = "t") -> CatalogState:
    """Returns `state` published up to `ends`; the output offset is the source offset + 1000."""
    points = ((partition, end, OutputPoint(end, end + 1000)) for partition, end in ends.items())
    return apply(state, [Publish(topic=topic, partition=one, end=end, output=point) for one, end, point in points])


def log_of(state: CatalogState, partition: int = 0, topic: str = "t") -> PartitionLog:
    return state.log(TopicPartition(topic, partition))


def plans(state: CatalogState, ends: Mapping[int, int], topic: str = "t") -> list[PublishPlan]:
    """Returns a plan for each bucket: everything from published to `ends`."""
    found: dict[int, list[PublishTarget]] = {}
    for partition, end in ends.items():
        log = log_of(state, partition, topic)
        one = PublishTarget(
            topic=topic, partition=partition, bucket=log.bucket, output="out", start=log.published, end=end
        )
        found.setdefault(log.bucket, []).append(one)
    return [
        PublishPlan(bucket=bucket, epoch=1, catalog_id="cat", targets=tuple(targets))
        for bucket, targets in sorted(found.items())
    ]


def record_dicts(batches: Iterable[pa.RecordBatch | pa.Table]) -> list[Row]:
    """Returns rows as dicts of the columns of RECORDS."""
    return [{name: one[name] for name in record.RECORDS.names} for batch in batches for one in batch.to_pylist()]
