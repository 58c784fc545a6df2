"""The source through Spark: micro-batches that the driver plans, and errors that find their way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from compactor.ingest.appends import Batch
from compactor.ingest.ingest import WRITTEN, gather
from compactor.storage.local import LocalStorage
from connectors.clock import SystemClock
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import DataLossError
from connectors.kafka.admin import Admin
from connectors.source import read_route
from connectors.source.driver_link import DriverLink
from connectors.source.micro_batches import MicroBatches
from connectors.source.plan import TopicOffsets
from connectors.source.planner import Planner
from connectors.source.portion import Offer
from connectors.source.read_task import read_apart
from connectors.source.subscription import Subscription
from connectors.source.topics import SourceTopics
from connectors.spark import stream
from tests.support.broker_source import numbered_records
from tests.support.engine import intake
from tests.support.kafka import (
    TIMEOUT_S,
    add_partitions,
    create_topic,
    delete_records,
    produce,
    produce_transaction,
    wait_until,
)
from tests.support.source_options import source_options

Stated = tuple[str, int, int, int, int]


class Connector:
    """Reads as a connector's own thread does, and keeps what it was given."""

    def __init__(self, spark: SparkSession, subscription: Subscription) -> None:
        self._spark = spark
        self.subscription = subscription
        self.batches: list[Batch] = []
        self.apart: list[Offer] = []

    def turn(self) -> bool:
        """Plans, and takes what comes within a moment; returns whether anything came."""
        self.subscription.plan()
        found = self.subscription.next(0.1)
        if isinstance(found, Offer):
            self.apart.append(found)
            found = read_apart(self._spark, found, lambda: False)
        if found is None:
            return False
        self.batches.append(found)
        self.subscription.taken(found)
        return True

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Takes turns until `condition`."""
        wait_until(lambda: bool(self.turn() and False) or condition(), what, TIMEOUT_S)

    def stated(self) -> list[Stated]:
        every = (read for batch in self.batches for read in batch.ranges)
        return [(read.tp.topic, read.tp.partition, read.lo, read.hi, read.records) for read in every]

    def read(self) -> dict[int, int]:
        """How many records of each partition were stated; every one of them is in a file."""
        found: dict[int, int] = {}
        for _, partition, *_, count in self.stated():
            found[partition] = found.get(partition, 0) + count
        assert sum(part.file.records for batch in self.batches for part in batch.parts) == sum(found.values())
        return found


class Running:
    """The driver's side of a worker's query, and the query."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.tasks: list[int] = []
        self.columns: list[str] = []
        self._bootstrap = bootstrap
        self._folder = folder
        self._queries: list[StreamingQuery] = []
        self.batches = MicroBatches(2, shared=False)
        self.link = DriverLink(self.batches)
        self.link.open()

    def start(self) -> StreamingQuery:
        checkpoint = self._folder / f"checkpoint-{len(self._queries)}"
        self._queries.append(stream.start(self.spark, self.link.address, checkpoint.as_uri(), self._take))
        return self._queries[-1]

    def connector(self, *topics: str, pinned: bool = False, **named: Any) -> Connector:
        given: dict[str, Any] = {"bootstrap.servers": self._bootstrap, "log_level": 0}
        target = intake(LocalStorage(str(self._folder / "runs")))
        made = source_options(given, topics, timeout=20.0, metadata_age=0.001, intake=target, **named)
        options = replace(made, pinned=pinned)
        planner = Planner(options, SourceTopics(options.connector, Admin(given)))
        found = Subscription(options, planner, SystemClock(), lambda: None, shared=lambda: self.batches.shared)
        found.begin()
        self.batches.add(found, options.clients)
        return Connector(self.spark, found)

    def close(self) -> None:
        self.batches.close()
        for query in self._queries:
            with suppress(Exception):
                query.stop()
        self.link.close()

    def _take(self, frame: DataFrame) -> None:
        self.tasks.append(frame.rdd.getNumPartitions())
        self.columns = frame.columns
        self.batches.deliver(gather(frame))


@pytest.fixture
def running(spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path) -> Iterator[Running]:
    found = Running(spark, broker.bootstrap, tmp_path)
    yield found
    found.close()


def test_a_micro_batch_reads_everything_once(broker: EmbeddedKafka, running: Running, topic_name: str) -> None:
    """It writes every committed record of every partition, over several tasks, and states its ranges."""
    create_topic(broker.bootstrap, topic_name, 3)
    produce(broker.bootstrap, topic_name, numbered_records(50_000) + numbered_records(10, 1))
    produce_transaction(broker.bootstrap, topic_name, numbered_records(5, 1), commit=False)
    one = running.connector(topic_name)
    running.start()
    one.until(lambda: one.batches, "it is read")
    assert running.columns == WRITTEN.names
    assert running.tasks == [2]
    assert one.read() == {0: 50_000, 1: 10}
    assert sum(hi - lo for *_, lo, hi, _ in one.stated()) == 50_016
    assert one.apart == []


def test_without_records_no_micro_batch_is_run(broker: EmbeddedKafka, running: Running, topic_name: str) -> None:
    """Records are read as they come; without any there is none; an aborted transaction is a batch without records."""
    create_topic(broker.bootstrap, topic_name)
    one = running.connector(topic_name)
    running.start()
    produce(broker.bootstrap, topic_name, numbered_records(3))
    one.until(lambda: one.batches, "the first records are read")
    produce_transaction(broker.bootstrap, topic_name, numbered_records(3), commit=False)
    one.until(lambda: (topic_name, 0, 3, 7, 0) in one.stated(), "the aborted range is stated")
    produce(broker.bootstrap, topic_name, numbered_records(1))
    one.until(lambda: (topic_name, 0, 7, 8, 1) in one.stated(), "the last record is read")
    assert not any(one.turn() for _ in range(5))
    assert len(running.tasks) == len(one.batches) == 3


def test_no_plan_shows_a_secret(running: Running, capfd: pytest.CaptureFixture[str]) -> None:
    """The key of the driver's socket appears neither in an explained plan nor in Spark's progress."""
    address = running.link.address
    frame = stream.load(running.spark, address)
    frame.explain(mode="extended")
    frame.explain(mode="formatted")
    query = running.start()
    wait_until(lambda: running.tasks and query.recentProgress, "a micro-batch has ended", TIMEOUT_S)
    query.explain(extended=True)
    shown = capfd.readouterr().out + str([one.json for one in query.recentProgress])
    assert "keyfold" in shown
    assert address.key not in shown


def test_a_pinned_connector_reads_to_its_end_in_admitted_batches(
    broker: EmbeddedKafka, running: Running, topic_name: str
) -> None:
    """It takes the backlog in batches of max.offsets.per.trigger, each of every partition, and ends where it began."""
    create_topic(broker.bootstrap, topic_name, 2)
    produce(broker.bootstrap, topic_name, numbered_records(90) + numbered_records(10, 1))
    one = running.connector(topic_name, pinned=True, limits={"max_offsets": 40})
    produce(broker.bootstrap, topic_name, numbered_records(7))
    running.start()
    one.until(lambda: one.subscription.finished, "it has read everything")
    assert [sum(read.records for read in batch.ranges) for batch in one.batches] == [40, 40, 20]
    assert one.read() == {0: 90, 1: 10}
    assert all(len(batch.ranges) == 2 for batch in one.batches)


def test_another_query_goes_on_where_the_last_one_ended(
    broker: EmbeddedKafka, running: Running, new_topic_name: Callable[[str], str]
) -> None:
    """A new planner process, with no checkpoint of the last, and partitions and topics that came meanwhile."""
    first = create_topic(broker.bootstrap, new_topic_name("again-a"))
    second = first.replace("again-a", "again-b")
    one = running.connector(regex=first.replace("again-a", "again-[ab]"))
    produce(broker.bootstrap, first, numbered_records(5))
    query = running.start()
    one.until(lambda: one.batches, "it is read")
    query.stop()
    running.batches.abandon()
    add_partitions(broker.bootstrap, first, 2)
    create_topic(broker.bootstrap, second)
    produce(broker.bootstrap, first, numbered_records(2) + numbered_records(3, 1))
    produce(broker.bootstrap, second, numbered_records(4))
    running.start()
    one.until(lambda: len(one.stated()) == 4, "the rest is read")
    assert sorted(one.stated()) == sorted(
        [(first, 0, 0, 5, 5), (first, 0, 5, 7, 2), (first, 1, 0, 3, 3), (second, 0, 0, 4, 4)]
    )


@pytest.mark.parametrize("shared", [False, True])
def test_lost_records_reach_the_connector_as_what_they_are(
    broker: EmbeddedKafka,
    running: Running,
    new_topic_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    shared: bool,
) -> None:
    """DataLossError of a reading task is raised in the connector's thread, and the query goes on for the other one."""
    monkeypatch.setattr(read_route, "DRIVER_READ_MAX", 0)  # few offsets are read within bounds as well
    running.batches.shared = shared
    lost, sound = (create_topic(broker.bootstrap, new_topic_name(stem)) for stem in ("lost", "sound"))
    produce(broker.bootstrap, lost, numbered_records(9))
    delete_records(broker.bootstrap, lost, 0, 5)
    topic_id = Admin({"bootstrap.servers": broker.bootstrap}).describe([lost])[lost].id
    one = running.connector(lost, connector="orders", starts={lost: TopicOffsets(topic_id, {0: 2})})
    query = running.start()

    with pytest.raises(DataLossError) as caught:
        one.until(lambda: False, "it fails")
    assert f"Connector orders: records of {lost}-0" in caught.value.message
    assert "on.data.loss=skip" in caught.value.action
    assert len(one.apart) == shared
    other = running.connector(sound, connector="other")
    produce(broker.bootstrap, sound, numbered_records(4))
    other.until(lambda: other.batches, "the other one is read")
    assert (other.read(), query.isActive) == ({0: 4}, True)


def test_an_error_of_the_driver_fails_the_query(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named in what the query failed with: nobody waits for a micro-batch that is never planned."""

    def broken(_start: int) -> int:
        raise ValueError("no plan today")

    monkeypatch.setattr(running.batches, "latest", broken)
    query = running.start()
    wait_until(lambda: not query.isActive, "it has failed", TIMEOUT_S)
    assert "no plan today" in str(query.exception())
