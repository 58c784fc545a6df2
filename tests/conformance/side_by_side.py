"""Lets Kafka and keyfold compact the same workloads, many at a time: one partition for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from uuid import uuid4

from compactor.runs.reader import read
from compactor.runs.scan import whole
from compactor.storage.locations import open_storage
from connectors.dev.embedded_config import Layout
from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.conformance.compare import Record, of_log, of_topic
from tests.conformance.feeder import Feeder
from tests.conformance.kafka_cleaner import KafkaCleaner, create_compacted
from tests.conformance.workload import Operation
from tests.support.deployment import Deployment
from tests.support.kafka import Read, consume_all, create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITH_TOMBSTONES: Final = "tombstones kept"
WITHOUT_TOMBSTONES: Final = "tombstones gone"
RETENTION_MS: Final = {WITH_TOMBSTONES: 86_400_000, WITHOUT_TOMBSTONES: 0}
"""delete.retention.ms of each of the two comparisons."""

_MICRO_BATCHES: Final = 3

Workloads: TypeAlias = Mapping[str, Sequence[Operation]]


class Compacted(NamedTuple):
    """The records of one workload after compaction, on both sides."""

    kafka: list[Record]
    keyfold: list[Record]


class SideBySide:
    """Compacts workloads with Kafka's cleaner and with keyfold; prints the time of each step by `say`."""

    def __init__(
        self, broker: EmbeddedKafka, spark: SparkSession, folder: Path, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._broker = broker
        self._spark = spark
        self._folder = folder
        self._say = say
        self._cleaner = KafkaCleaner(broker.bootstrap, Layout(broker.log_file.parent).data)

    def run(self, workloads: Workloads) -> dict[tuple[str, str], Compacted]:
        """Returns the compacted records of each workload, by its name and by what happens to tombstones."""
        began = time.monotonic()
        one = _Run(self._broker.bootstrap, self._folder, workloads)
        ends = one.feed()
        fed = time.monotonic()
        self._clean(one, ends)
        cleaned = time.monotonic()
        found = one.kept(self._spark, ends)
        self._say(
            f"{len(workloads)} workloads, {sum(ends.values())} offsets: sent in {fed - began:.1f} s, "
            f"cleaned by Kafka in {cleaned - fed:.1f} s, folded and read in {time.monotonic() - cleaned:.1f} s"
        )
        return found

    def _clean(self, one: _Run, ends: Mapping[str, int]) -> None:
        """One pass over all that was sent; where tombstones shall go, a second one once the first is done."""
        places = {kind: one.places(kind, ends) for kind in RETENTION_MS}
        self._cleaner.pass_over(places[WITH_TOMBSTONES] | places[WITHOUT_TOMBSTONES])
        self._cleaner.pass_again(places[WITHOUT_TOMBSTONES])


class _Run:
    """The topics of one run: two that Kafka compacts, and the one that keyfold reads."""

    def __init__(self, bootstrap: str, folder: Path, workloads: Workloads) -> None:
        stem = f"conformance-{uuid4().hex[:8]}"
        self._bootstrap = bootstrap
        self._folder = folder / stem
        self._workloads = workloads
        self._partitions = {name: number for number, name in enumerate(workloads)}
        count = len(workloads)
        self._source = create_topic(bootstrap, stem, count, cleanup_policy="delete", retention_ms=-1)
        self._compacted = {
            kind: create_compacted(bootstrap, f"{stem}-{retention_ms}", count, retention_ms)
            for kind, retention_ms in RETENTION_MS.items()
        }

    def feed(self) -> dict[str, int]:
        """The end of each workload, the same in all three topics."""
        with Feeder(self._bootstrap, [self._source, *self._compacted.values()]) as feeder:
            return {name: feeder.feed(self._partitions[name], each) for name, each in self._workloads.items()}

    def places(self, kind: str, ends: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """The end in each partition of the topic that Kafka compacts."""
        return {(self._compacted[kind], self._partitions[name]): end for name, end in ends.items()}

    def kept(self, spark: SparkSession, ends: Mapping[str, int]) -> dict[tuple[str, str], Compacted]:
        """Kafka's and keyfold's records of each workload."""
        ours = {WITH_TOMBSTONES: self._folded(spark, ends), WITHOUT_TOMBSTONES: self._folded_twice(spark)}
        return {
            (name, kind): Compacted(of_topic(theirs[number], ends[name]), ours[kind][number])
            for kind, topic in self._compacted.items()
            for theirs in (self._read(topic),)
            for name, number in self._partitions.items()
        }

    def _read(self, topic: str) -> dict[int, list[Read]]:
        """Without regard to transactions: what an aborted one left would be seen."""
        found: dict[int, list[Read]] = {number: [] for number in self._partitions.values()}
        for record in consume_all(self._bootstrap, topic, "read_uncommitted"):
            found[record.partition].append(record)
        return found

    def _folded(self, spark: SparkSession, ends: Mapping[str, int]) -> dict[int, list[Record]]:
        """After one full fold of a log that came in several micro-batches and was published."""
        deployment = self._place(WITH_TOMBSTONES)
        deployment.run_once(spark, max_offsets_per_trigger=sum(ends.values()) // _MICRO_BATCHES + 1)
        return self._log(deployment)

    def _folded_twice(self, spark: SparkSession) -> dict[int, list[Record]]:
        """After two full folds: the second has nothing new, and every horizon has passed."""
        deployment = self._place(WITHOUT_TOMBSTONES)
        deployment.run_once(spark, output_topic="none")
        deployment.run_once(spark)
        return self._log(deployment)

    def _place(self, kind: str) -> Deployment:
        folder = self._folder / kind.replace(" ", "-")
        folder.mkdir(parents=True)
        deployment = Deployment(folder, self._bootstrap, self._source)
        deployment.name = deployment.settings["name"] = self._compacted[kind]
        deployment.settings["delete.retention.ms"] = RETENTION_MS[kind]
        del deployment.settings["snapshot.location"]
        return deployment

    def _log(self, deployment: Deployment) -> dict[int, list[Record]]:
        storage = open_storage(str(deployment.folder / "storage")).sub(deployment.name)
        return {
            log.partition: of_log(row for batch in read(storage, whole(log)) for row in batch.to_pylist())
            for log in deployment.state().logs
        }
