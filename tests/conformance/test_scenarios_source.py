"""The acceptance scenarios in which Kafka itself has a part: one connector on a real topic, a partition for each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from confluent_kafka import Producer

from compactor.catalog.owner_lock import OwnerLock
from compactor.errors import RejectedRecordError
from compactor.model.log import Gap
from compactor.model.record import TopicPartition
from compactor.runs.reader import read
from compactor.runs.scan import whole
from compactor.settings import CompactionPolicy
from compactor.storage.locations import open_storage
from connectors.clock import SystemClock
from connectors.config.files import load_worker
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import DataLossError, SourceChangedError
from connectors.progress.observer import Observer
from connectors.runtime import connector_task, reading_thread
from connectors.runtime.stop import Stop
from connectors.source.plan import TopicOffsets
from tests.conformance.feeder import Feeder
from tests.conformance.reader import Rows
from tests.conformance.workload import BASE_MS, End, Entry, Operation, Send
from tests.support.broker_source import BrokerSource
from tests.support.brokerless import BrokerlessConnector
from tests.support.deployment import Deployment
from tests.support.engine import row
from tests.support.kafka import (
    TIMEOUT_S,
    ToSend,
    consume_all,
    create_topic,
    delete_records,
    end_offsets,
    produce,
    wait_until,
)
from tests.support.promises import with_sources
from tests.support.queries import shared_query

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

HOUR_MS: Final = 3_600_000
OPEN, ABORTED, INTERLEAVED, BINARY, KEYLESS, MARKER_END, ABORTED_END, LOST, ALL_LOST = PARTITIONS = range(9)

ABORT_KEY, COMMIT_KEY = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"
"""The bytes of a marker's key: its version and its type."""


def sent(producer: str, *records: tuple[bytes, bytes | None]) -> Send:
    """What a producer of the feeder sends in one go, long ago."""
    return Send(producer, tuple(Entry(key, value) for key, value in records))


WORKLOADS: Final[dict[int, tuple[Operation, ...]]] = {
    ABORTED: (
        sent("tx-a", (b"a", b"kept")),
        End("tx-a", commit=True),
        sent("tx-b", (b"a", b"aborted"), (b"only", b"aborted")),
        End("tx-b", commit=False),
        sent("none", (b"b", b"behind")),
    ),
    INTERLEAVED: (
        sent("tx-a", (b"1", b"one"), (b"2", b"one")),
        sent("tx-b", (b"2", b"two"), (b"3", b"two")),
        sent("tx-a", (b"3", b"one"), (b"4", b"one")),
        End("tx-a", commit=False),
        End("tx-b", commit=True),
        sent("tx-a", (b"2", b"one again")),
        End("tx-a", commit=True),
    ),
    BINARY: (
        sent("none", (b"", b"old"), (ABORT_KEY, b"a"), (COMMIT_KEY, b"c"), (b"\xff\xfe", b"")),
        sent("tx-a", (b"t", b"committed")),
        End("tx-a", commit=True),
        sent("tx-b", (b"t", b"aborted")),
        End("tx-b", commit=False),
        sent("none", (b"", b""), (b"deleted", None)),
    ),
    MARKER_END: (sent("tx-a", (b"k", b"v")), End("tx-a", commit=True)),
    ABORTED_END: (sent("none", (b"k", b"v")), sent("tx-a", (b"k", b"aborted")), End("tx-a", commit=False)),
}


class Ahead(SystemClock):
    """A clock that is `by_ms` fast."""

    def __init__(self, by_ms: int) -> None:
        self._by_ms = by_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._by_ms


class Ran(NamedTuple):
    """The connector after its first runs; `open` is a producer whose transaction in OPEN has not ended."""

    deployment: Deployment
    open: Producer
    refused: RejectedRecordError
    counts: dict[str, int]

    def once(self, spark: SparkSession, ahead_ms: int = 0, **changes: Any) -> dict[str, int]:
        """`run --once` by a clock that is fast; what the worker has counted."""
        return once(self.deployment, spark, ahead_ms, **changes)

    def output(self, partition: int) -> Rows:
        """What a read_committed reader of the output sees of a partition, with source offsets."""
        found = with_sources(consume_all(self.deployment.bootstrap, self.deployment.output))
        mine = [one for one in found if one.record.partition == one.source_partition == partition]
        return [(one.source_offset, one.record.key, one.record.value) for one in mine]

    def kept(self, partition: int) -> Rows:
        """What the log keeps of a partition."""
        storage = open_storage(str(self.deployment.folder / "storage")).sub(self.deployment.name)
        log = self.deployment.state().log(TopicPartition(self.deployment.topic, partition))
        rows = [one for batch in read(storage, whole(log)) for one in batch.to_pylist()]
        return [(one["offset"], one["key"], one["value"]) for one in rows]

    def at(self, partition: int) -> tuple[int, int]:
        """Up to which offset a partition is read, and published."""
        log = self.deployment.state().log(TopicPartition(self.deployment.topic, partition))
        return log.end, log.published


def once(deployment: Deployment, spark: SparkSession, ahead_ms: int = 0, **changes: Any) -> dict[str, int]:
    config = deployment.config(**changes)
    counts: dict[str, int] = {}
    report = lambda report: counts.update(report.counters)  # noqa: E731
    worker = load_worker(deployment.folder / "worker.json")
    with shared_query(spark) as query:
        lock = OwnerLock(deployment.storage)
        task = connector_task.ConnectorTask(spark, worker, config, Ahead(ahead_ms), Observer(), report, lock)
        task.run(Stop(), query, once=True, start=deployment.drawn_start())
        lock.release()
    return counts


def dead_letters(topic: str) -> str:
    """Where records without a key go."""
    return f"{topic}.dead"


@pytest.fixture(scope="module")
def ran(spark: SparkSession, broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """The topic is filled, and the connector run twice: strictly, which fails, and then with a dead letter topic."""
    folder: Path = tmp_path_factory.mktemp("scenarios")
    deployment = Deployment(folder, broker.bootstrap, f"scenarios-{folder.name}")
    create_topic(broker.bootstrap, deployment.topic, len(PARTITIONS), cleanup_policy="delete", retention_ms=-1)
    with Feeder(broker.bootstrap, [deployment.topic]) as feeder:
        for partition, operations in WORKLOADS.items():
            feeder.feed(partition, operations)
    patient = {"transactional.id": deployment.name, "transaction.timeout.ms": 900_000, "log_level": 0}
    with Producer({"bootstrap.servers": broker.bootstrap, **patient}) as producer:
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(deployment.topic, b"undecided", b"a", OPEN, timestamp=BASE_MS)
        assert producer.flush(TIMEOUT_S) == 0
        long_ago: list[tuple[int, bytes | None]] = [(OPEN, b"behind"), (KEYLESS, b"k"), (KEYLESS, None), (KEYLESS, b"")]
        long_ago += [(partition, b"%d" % number) for partition in (LOST, ALL_LOST) for number in range(5)]
        produce(broker.bootstrap, deployment.topic, [ToSend(p, key, b"v", (), BASE_MS) for p, key in long_ago])
        del deployment.settings["snapshot.location"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading_thread, "TOPICS_CHECK_MS", 0)  # looking at the topics must not hide what failed
            with pytest.raises(RejectedRecordError) as refused:
                once(deployment, spark, min_compaction_lag_ms=HOUR_MS)
        tolerant: dict[str, Any] = {
            "errors_tolerance": "all",
            "errors_deadletterqueue_topic_name": dead_letters(deployment.topic),
        }
        yield Ran(deployment, producer, refused.value, once(deployment, spark, **tolerant))


def test_scenario_04_lso(ran: Ran, spark: SparkSession) -> None:
    """An open transaction holds what is read; after it ended all behind it comes, up to what the lag holds: 0, 3, 4."""
    deployment = ran.deployment
    steps = [ran.at(OPEN)]
    ran.open.abort_transaction(TIMEOUT_S)
    wait_until(lambda: end_offsets(deployment.bootstrap, deployment.topic)[OPEN] == 3, "the marker is written")
    produce(deployment.bootstrap, deployment.topic, [ToSend(OPEN, b"young", b"v", (), time.time_ns() // 1_000_000)])
    ran.once(spark)
    steps.append(ran.at(OPEN))
    assert ran.output(OPEN) == [(1, b"behind", b"v")]
    ran.once(spark, ahead_ms=HOUR_MS + 1000)
    steps.append(ran.at(OPEN))
    assert steps == [(0, 0), (4, 3), (4, 4)]
    assert ran.output(OPEN) == ran.kept(OPEN) == [(1, b"behind", b"v"), (3, b"young", b"v")]


def test_scenario_05_aborted_data(ran: Ran) -> None:
    """Aborted records never appear, though they are all that a key has, and hide no older committed value."""
    assert ran.output(ABORTED) == ran.kept(ABORTED) == [(0, b"a", b"kept"), (5, b"b", b"behind")]


def test_scenario_06_interleaved_transactions(ran: Ran) -> None:
    """Of two interleaved transactions, one aborted, and a third, key 3 of offset 3 and key 2 of offset 8 are left."""
    assert ran.output(INTERLEAVED) == ran.kept(INTERLEAVED) == [(3, b"3", b"two"), (8, b"2", b"one again")]


def test_scenario_15_empty_vs_null(ran: Ran) -> None:
    """An empty value is a value and an empty key a key; a key with the bytes of a marker's key is like any other."""
    expected: Rows = [
        (1, ABORT_KEY, b"a"),
        (2, COMMIT_KEY, b"c"),
        (3, b"\xff\xfe", b""),
        (4, b"t", b"committed"),
        (8, b"", b""),
        (9, b"deleted", None),
    ]
    assert ran.output(BINARY) == ran.kept(BINARY) == expected


def test_scenario_16_null_key(ran: Ran) -> None:
    """A record without a key stops a strict connector by name; let go, it is counted and in the dead letter topic."""
    topic = ran.deployment.topic
    assert f"topic {topic}, partition {KEYLESS}, offset 1 cannot be folded: null key" in ran.refused.message
    assert "errors.tolerance=all" in ran.refused.action
    (letter,) = consume_all(ran.deployment.bootstrap, dead_letters(topic))
    assert (letter.key, letter.value) == (None, b"v")
    assert letter.timestamp_ms > BASE_MS  # letters age from their arrival
    assert (ran.counts["records_rejected"], ran.counts["dead_letters"]) == (1, 1)
    assert ran.output(KEYLESS) == ran.kept(KEYLESS) == [(0, b"k", b"v"), (2, b"", b"v")]


def test_scenario_16_null_key_after_a_policy_switch(spark: SparkSession, tmp_path: Path) -> None:
    """A raw copy's records without a key are counted when a fold drops them, once cleanup.policy is compact."""
    kept = BrokerlessConnector(spark, tmp_path, policy=CompactionPolicy(cleanup_policy=("delete",)))
    kept.ingest([row(0, 0, None, b"keyless"), row(0, 1, b"k", b"v")])
    kept.publish()
    kept.configure(CompactionPolicy())
    kept.cleaner.clean(0)
    assert kept.rows() == [(1, b"k", b"v")]
    assert kept.counters.values()["records_rejected"] == 1


def test_scenario_19_end_detection(ran: Ran) -> None:
    """A topic that ends in a marker or an aborted record is read to its end by position: end 2 with a record at 0."""
    ends = end_offsets(ran.deployment.bootstrap, ran.deployment.topic)
    assert {number: (end, end) for number, end in ends.items() if number in (MARKER_END, ABORTED_END)} == {
        MARKER_END: ran.at(MARKER_END),
        ABORTED_END: ran.at(ABORTED_END),
    }
    assert (ends[MARKER_END], ran.output(MARKER_END)) == (2, [(0, b"k", b"v")])
    assert (ends[ABORTED_END], ran.output(ABORTED_END)) == (3, [(0, b"k", b"v")])


def test_scenario_20_checkpoint_repair(ran: Ran, spark: SparkSession) -> None:
    """A log start beyond what was read is an exact gap, also where nothing is left; an end below it is an alarm."""
    deployment = ran.deployment
    both = [ToSend(partition, b"%d" % at, b"w", (), BASE_MS) for partition in (LOST, ALL_LOST) for at in range(5, 10)]
    produce(deployment.bootstrap, deployment.topic, both)
    for partition, before in ((LOST, 8), (ALL_LOST, 10)):
        delete_records(deployment.bootstrap, deployment.topic, partition, before)
    with pytest.raises(DataLossError, match=r"offset 5, .* starts at (8|10)"):
        ran.once(spark)
    assert [ran.at(partition) for partition in (LOST, ALL_LOST)] == [(5, 5), (5, 5)]
    counts = ran.once(spark, on_data_loss="skip")
    logs = {log.partition: log for log in deployment.state().logs}
    assert [logs[partition].gaps for partition in (LOST, ALL_LOST)] == [(Gap(5, 8),), (Gap(5, 10),)]
    assert counts["offsets_lost"] == 8
    assert [ran.at(partition) for partition in (LOST, ALL_LOST)] == [(10, 10), (10, 10)]
    assert [offset for offset, _, _ in ran.output(LOST)] == [*range(5), 8, 9]
    source = BrokerSource(deployment.bootstrap, deployment.topic)
    beyond = {deployment.topic: TopicOffsets(deployment.state().topics[deployment.topic].topic_id, {LOST: 11})}
    with pytest.raises(SourceChangedError, match="ends at offset 10, below our position 11"):
        source.planner.latest(beyond, None)
