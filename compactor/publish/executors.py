"""Carries out steps 6 to 11 in the cheapest way: in this process, in a Spark task per bucket, or with Spark's fold.

A bucket is one task of the fold, whatever it holds: its publisher also commits positions of logs that have no record
due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.fold import on_spark
from compactor.fold.chooser import CheapestFold, Folds
from compactor.fold.latest_per_key import FoldJob, Work
from compactor.fold.memory_budget import KEYS, READ, TASKS, FoldBudget, local
from compactor.model.publish_plan import PublishPlan, PublishResult
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.ports import Broker, Publisher
from compactor.publish.begun import begun
from compactor.publish.late import LateRecords, logs_at_ends
from compactor.publish.plan import SENT, complete, due_of, results_of, sent_rows
from compactor.publish.retired import EarlierKeys, earlier_ranges
from compactor.publish.unchanged import KnownRecords, known_ranges, published_logs_of
from compactor.settings import EngineSettings
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PublishExecutor:
    """Carries out publish plans by `fold`, which says how the last one was folded.

    Once `stopped` returns True, a publish in this process ends soon, and nothing is tried again.
    """

    def __init__(
        self,
        spark: SparkSession,
        storage: Storage,
        broker: Broker,
        stopped: Callable[[], bool],
        folds: Folds | None = None,
    ) -> None:
        self._broker = broker
        self._storage = storage
        self._stopped = stopped
        self.fold = CheapestFold(folds or Folds.of(spark, storage), "publishing", stopped)

    def send(
        self, state: CatalogState, plans: Sequence[PublishPlan], settings: EngineSettings
    ) -> tuple[PublishResult, ...]:
        """Sends what is due by `plans`; returns one result for each of their targets.

        Raises what the publisher raises, as it was raised; FoldError if an answer is missing.
        """
        job = fold_job(
            state,
            plans,
            self._storage,
            publisher=lambda: self._broker.publisher(state),
            local_publisher=lambda: self._broker.local_publisher(state, self._stopped),
            local_records=settings.publish_local_max_records,
            skips_unchanged=settings.skips_unchanged,
        )
        return complete(plans, results_of(self.fold.run(job).rows))


def fold_job(
    state: CatalogState,
    plans: Sequence[PublishPlan],
    storage: Storage,
    *,
    publisher: Callable[[], Publisher],
    local_publisher: Callable[[], Publisher],
    local_records: int,
    skips_unchanged: bool = False,
) -> FoldJob:
    """Returns the fold that carries out `plans`: a task per bucket, with its number, gives records to a publisher.

    Up to `local_records` are sent by `local_publisher` in this process, more by `publisher` in Spark's tasks.
    `skips_unchanged`: records that change nothing are not given to it.
    """
    by_bucket = {plan.bucket: plan for plan in plans}
    due = due_of(state, plans)
    targets = [target for plan in plans for target in plan.targets]
    earlier = EarlierKeys(storage, earlier_ranges(state, targets))
    known = KnownRecords(
        storage,
        known_ranges(state, targets) if skips_unchanged else {},
        topics=published_logs_of(storage, state, targets) if skips_unchanged and state.is_of_topics else None,
    )
    late = LateRecords(logs_at_ends(storage, state, targets))
    return FoldJob(
        ranges=[part.range for part in due],
        keep=LatestAndRejected(),
        work=lambda: _publishing(by_bucket, publisher(), late, known, earlier),
        work_here=lambda: _publishing(by_bucket, local_publisher(), late, known, earlier),
        answers=SENT,
        budget=FoldBudget(here=local(local_records), memory=TASKS, read=READ, keys=KEYS),
        tasks={bucket: [log for log, part in enumerate(due) if part.bucket == bucket] for bucket in by_bucket},
    )


class LatestAndRejected(Struct, frozen=True):
    """`FoldFilter` of publishing: the latest record of every key, and rejected ones, which are sent too."""

    by_key: bool = True

    def of(self, logs: Sequence[int]) -> LatestAndRejected:  # noqa: ARG002  # it is the same for all
        """See `FoldFilter.of`."""
        return self

    def of_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """See `FoldFilter.of_batch`."""
        return batch

    def on_spark(self, frame: DataFrame) -> DataFrame:
        """See `FoldFilter.on_spark`."""
        return on_spark.latest(frame)


def _publishing(
    plans: Mapping[int, PublishPlan],
    publisher: Publisher,
    late: LateRecords,
    known: KnownRecords,
    earlier: EarlierKeys,
) -> Work:
    """Returns what a task does: one bucket's records go to the publisher, its answers come back as rows of SENT.

    A record that changes nothing retires no key: the one before it, which has the same key, has done so. The keys that
    are retired are looked for while the publisher takes steps 6 to 8, as it waits for brokers then.
    """

    def work(bucket: int, records: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
        lost: Counter[TopicPartition] = Counter()
        unchanged: Counter[TopicPartition] = Counter()
        sendable = known.changed(late.without(records, lost), unchanged)
        with begun(lambda: earlier.with_retired(sendable)) if earlier.ranges else nullcontext(sendable) as sent:
            results = publisher.publish(plans[bucket], sent)
        told = [replace(result, unchanged=unchanged[result.tp], late=lost[result.tp]) for result in results]
        return [pa.RecordBatch.from_pylist(sent_rows(told), schema=SENT)]

    return work
