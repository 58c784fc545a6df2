"""A connector without a broker: storage, catalog and cleaner, for tests that clean again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from compactor.catalog.catalog import Catalog
from compactor.clean.cleaner import Cleaner
from compactor.clean.rewriter import Rewriter
from compactor.fold.chooser import Folds
from compactor.fold.latest_per_key import Folded, FoldJob, LatestPerKey
from compactor.ingest.appends import Batch, appends
from compactor.metrics import Counters
from compactor.model.actions import AddPartition, AddTopic, Publish, SetBuckets
from compactor.model.log import OutputPoint, PartitionLog
from compactor.model.record import RUN, RangeRead, TopicPartition
from compactor.quarantine.quarantine import QuarantineManager
from compactor.runs.reader import read
from compactor.runs.scan import whole
from compactor.runs.writer import RunTarget, write
from compactor.settings import CompactionPolicy, EngineSettings, FoldPolicy
from compactor.storage.base import Storage
from compactor.storage.local import LocalStorage
from tests.support.engine import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

import pyarrow as pa
from msgspec.structs import replace


class HookedTasks:
    """Folds in tasks (`LatestPerKey`), once `before` was called with the job."""

    def __init__(self, tasks: LatestPerKey, before: Callable[[FoldJob], object]) -> None:
        self._tasks = tasks
        self._before = before

    def run(self, job: FoldJob) -> Folded:
        self._before(job)
        return self._tasks.run(job)


class NoTasks:
    """Leaves every job (`LatestPerKey`) to Spark's plan."""

    def run(self, job: FoldJob) -> Folded:
        return Folded([], job)


def without_tasks(spark: SparkSession, storage: Storage) -> Folds:
    """Returns folds of which Spark's plan does each that is not done in this process."""
    return replace(Folds.of(spark, storage), in_tasks=NoTasks())


class BrokerlessConnector:
    """Owner of a catalog with partitions of topic t, which ingests and publishes what a test gives."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        partitions: int = 1,
        policy: CompactionPolicy | None = None,
        fold: FoldPolicy | None = None,
        limit: int | None = None,
    ) -> None:
        self.spark = spark
        self.storage = LocalStorage(str(folder))
        self.catalog = Catalog.open(self.storage, "c")
        self.catalog.take_over("test", 0)
        if not self.catalog.state.topics:
            self.catalog.commit(
                lambda _: [SetBuckets(count=1), AddTopic(topic="t", topic_id="T", output="o", output_id="O")], 0
            )
            adds = [AddPartition(topic="t", partition=one, bucket=0, start=0) for one in range(partitions)]
            self.catalog.commit(lambda _: adds, 0)
        self.counters = Counters()
        self.before_rewrite: Callable[[FoldJob], object] = lambda _: None
        """Called before a rewrite that was planned reads; what it raises, the rewrite raises."""
        self.uses_tasks = True
        self.configure(policy or CompactionPolicy(), fold or FoldPolicy(), limit)
        self._jobs = 0

    def configure(self, policy: CompactionPolicy, fold: FoldPolicy | None = None, limit: int | None = None) -> None:
        """Continues with other settings, as after a restart."""
        self.settings = EngineSettings(
            connector="c", policy=policy, fold=fold or FoldPolicy(), fold_io_max_bytes_per_second=limit
        )
        self.stopping = threading.Event()
        self.quarantine = QuarantineManager(self.catalog, self.stopping)
        folds = Folds.of(self.spark, self.storage)
        tasks = folds.in_tasks if self.uses_tasks else NoTasks()
        hooked = replace(folds, in_tasks=HookedTasks(tasks, self._before))
        self.rewriter = Rewriter(self.spark, self.storage, self.stopping.is_set, folds=hooked)
        self.cleaner = Cleaner(self.rewriter, self.catalog, self.quarantine, self.settings, self.counters, frozenset)

    def _before(self, job: FoldJob) -> None:
        self.before_rewrite(job)

    def restart(self) -> None:
        """Takes the connector over again."""
        self.catalog = Catalog.open(self.storage, "c")
        self.catalog.take_over("test", 0)
        self.configure(self.settings.policy, self.settings.fold, self.settings.fold_io_max_bytes_per_second)

    def log(self, partition: int = 0) -> PartitionLog:
        """Returns a log as the catalog has it."""
        return self.catalog.state.log(TopicPartition("t", partition))

    def ingest(self, rows: Sequence[Row], ends: dict[int, int] | None = None, now_ms: int = 0) -> None:
        """Ingests a micro-batch, up to the given end of each partition, or to its last record."""
        found = ends or {
            one: max(row["offset"] for row in rows if row["partition"] == one) + 1 for one in _partitions(rows)
        }
        self._jobs += 1
        prefix = f"{self.catalog.epoch}-batch{self._jobs}"
        target = RunTarget(storage=self.storage, prefix=prefix, max_bytes=1 << 27)
        table = pa.RecordBatch.from_pylist(
            [{"delete_horizon": None, "rejected": None, **row} for row in rows], schema=RUN
        )
        parts = tuple(write([table], target, "ingest.write")) if rows else ()
        reads = tuple(
            RangeRead(
                tp=TopicPartition("t", one),
                topic_id="T",
                lo=self.log(one).end,
                hi=end,
                start=self.log(one).end,
                records=sum(row["partition"] == one for row in rows),
            )
            for one, end in found.items()
        )
        batch = Batch(ranges=reads, parts=parts)
        self.catalog.commit(lambda state: appends(state, batch, now_ms), now_ms)

    def publish(self, ends: dict[int, int] | None = None, now_ms: int = 0) -> None:
        """Commits that all is published up to `ends`, by default the ends of the logs; nothing is sent."""
        found = ends or {log.partition: log.end for log in self.catalog.state.logs}
        actions = [
            Publish(topic="t", partition=one, end=end, output=OutputPoint(end, end + 1000))
            for one, end in found.items()
        ]
        self.catalog.commit(lambda _: actions, now_ms)

    def rows(self, partition: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
        """Reads a log; returns (offset, key, value) of its records."""
        batches = read(self.storage, whole(self.log(partition)))
        return [(one["offset"], one["key"], one["value"]) for batch in batches for one in batch.to_pylist()]


def _partitions(rows: Sequence[Row]) -> list[int]:
    return sorted({row["partition"] for row in rows})


def before_next_rewrite(connector: BrokerlessConnector, happens: Callable[[], object]) -> None:
    """Calls `happens` once, after the next rewrite is planned and before it reads."""

    def once(_: FoldJob) -> None:
        connector.before_rewrite = lambda _: None
        happens()

    connector.before_rewrite = once
