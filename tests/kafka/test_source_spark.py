"""The source through Spark: streams, restarts, and errors that find their way back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from compactor.errors import KeyfoldError
from compactor.model.record import SOURCE
from compactor.spark.errors import unwrap
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import ConfigError, DataLossError, SourceChangedError
from connectors.kafka.admin import Admin
from connectors.source.datasource import NAME, KafkaSource
from tests.support.clients import source_clients
from tests.support.kafka import (
    add_partitions,
    create_topic,
    delete_records,
    delete_topic,
    produce,
    produce_transaction,
    wait_until,
)

Row = tuple[str, int, int, bytes | None]


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(KafkaSource)


def options(broker: EmbeddedKafka, *topics: str, **extra: str) -> dict[str, str]:
    clients = source_clients({"bootstrap.servers": broker.bootstrap, "log_level": 0}, "orders")
    named = {} if "topics_regex" in extra else {"topics": json.dumps(topics)}
    given = {name.replace("_", "."): value for name, value in extra.items()}
    patience = {"metadata.max.age.ms": "1", "read.timeout.ms": "30000"}
    return {**clients, "connector": "orders", **patience, **named, **given}


def numbered(count: int, partition: int = 0) -> list[tuple[object, ...]]:
    return [(partition, b"k%d" % number, b"v%d" % number) for number in range(count)]


class Runs:
    """Starts streams into a list of what each micro-batch held, with one checkpoint."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self.batches: list[list[tuple[str, int, int]]] = []
        self.statements: list[tuple[str, int, int, int, int]] = []
        self.tasks: list[int] = []
        self.columns: list[str] = []

    def start(self, given: dict[str, str], **trigger: Any) -> StreamingQuery:
        stream = self._spark.readStream.format(NAME).options(**given).load()
        self.columns = stream.columns
        writer = stream.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self._checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def available_now(self, given: dict[str, str]) -> None:
        query = self.start(given, availableNow=True)
        assert query.awaitTermination(120)

    def _take(self, frame: DataFrame, _batch: int) -> None:
        self.tasks.append(frame.rdd.getNumPartitions())
        rows = frame.select("topic", "partition", "offset", "key", "range").collect()
        self.batches.append(sorted((row[0], row[1], row[2]) for row in rows if row[4] is None))
        self.statements += [(r[0], r[1], r[4]["lo"], r[4]["hi"], r[4]["records"]) for r in rows if r[4] is not None]

    def seen(self) -> list[tuple[str, int, int]]:
        return sorted(row for batch in self.batches for row in batch)


@pytest.fixture
def runs(spark: SparkSession, tmp_path: Path) -> Iterator[Runs]:
    yield Runs(spark, tmp_path / "checkpoint")
    for query in spark.streams.active:
        query.stop()


def caught(action: Callable[[], object]) -> KeyfoldError:
    """What `action` fails with, as the driver can tell it from Spark's exception."""
    with pytest.raises(Exception) as failure:  # noqa: PT011  # Spark has many classes for it
        action()
    found = unwrap(failure.value)
    assert found is not None, str(failure.value)
    return found


def test_a_micro_batch_reads_everything_once(broker: EmbeddedKafka, runs: Runs, topic_name: str) -> None:
    """It holds every committed record of every partition, over several tasks, and states its ranges."""
    create_topic(broker.bootstrap, topic_name, 3)
    produce(broker.bootstrap, topic_name, numbered(50_000) + numbered(10, 1))
    produce_transaction(broker.bootstrap, topic_name, numbered(5, 1), commit=False)
    runs.available_now(options(broker, topic_name, tasks_max="2"))
    assert runs.columns == SOURCE.names
    assert runs.tasks == [2]
    assert runs.seen() == [(topic_name, 0, each) for each in range(50_000)] + [
        (topic_name, 1, each) for each in range(10)
    ]
    assert (sum(hi - lo for *_, lo, hi, _ in runs.statements), sum(row[-1] for row in runs.statements)) == (
        50_016,
        50_010,
    )


def test_an_empty_topic_has_no_row(broker: EmbeddedKafka, runs: Runs, topic_name: str) -> None:
    """A stream of a topic without records has neither records nor ranges, and ends."""
    create_topic(broker.bootstrap, topic_name)
    runs.available_now(options(broker, topic_name))
    assert (runs.seen(), runs.statements) == ([], [])


def test_no_plan_shows_a_secret(broker: EmbeddedKafka, spark: SparkSession, topic_name: str, capfd: Any) -> None:
    """Client settings do not appear in an explained plan."""
    create_topic(broker.bootstrap, topic_name)
    secret = source_clients({"bootstrap.servers": broker.bootstrap, "sasl.password": "hunter2"})
    frame = spark.readStream.format(NAME).options(**{**options(broker, topic_name), **secret}).load()
    frame.explain(mode="extended")
    frame.explain(mode="formatted")
    assert "hunter2" not in capfd.readouterr().out


def test_available_now_reads_to_the_pinned_end_in_admitted_batches(
    broker: EmbeddedKafka, runs: Runs, topic_name: str
) -> None:
    """AvailableNow takes the backlog in batches of max.offsets.per.trigger and ends at the ends of its start."""
    create_topic(broker.bootstrap, topic_name, 2)
    produce(broker.bootstrap, topic_name, numbered(90) + numbered(10, 1))
    runs.available_now(options(broker, topic_name, max_offsets_per_trigger="40"))
    assert [len(batch) for batch in runs.batches] == [40, 40, 20]
    assert runs.seen() == [(topic_name, 0, each) for each in range(90)] + [(topic_name, 1, each) for each in range(10)]
    assert all(sum(row[1] == 1 for row in batch) for batch in runs.batches)


def test_a_restart_goes_on_from_the_checkpoint(
    broker: EmbeddedKafka, runs: Runs, new_topic_name: Callable[[str], str]
) -> None:
    """A new planner process goes on where the last one ended, with partitions and topics that came meanwhile."""
    first = create_topic(broker.bootstrap, new_topic_name("restart-a"))
    given = options(broker, topics_regex=first.replace("restart-a", "restart-[ab]"))
    produce(broker.bootstrap, first, numbered(5))
    runs.available_now(given)
    add_partitions(broker.bootstrap, first, 2)
    second = create_topic(broker.bootstrap, first.replace("restart-a", "restart-b"))
    produce(broker.bootstrap, first, numbered(2) + numbered(3, 1))
    produce(broker.bootstrap, second, numbered(4))
    runs.available_now(given)
    runs.available_now(given)
    mine = [(first, 0, each) for each in range(7)] + [(first, 1, each) for each in range(3)]
    assert runs.seen() == sorted(mine + [(second, 0, each) for each in range(4)])
    assert sorted(runs.statements) == sorted(
        [(first, 0, 0, 5, 5), (first, 0, 5, 7, 2), (first, 1, 0, 3, 3), (second, 0, 0, 4, 4)]
    )


def test_a_running_stream_follows_and_idles(broker: EmbeddedKafka, runs: Runs, topic_name: str) -> None:
    """Records are read as they come; without any no batch is run; an aborted transaction is a batch without records."""
    create_topic(broker.bootstrap, topic_name)
    query = runs.start(options(broker, topic_name))
    produce(broker.bootstrap, topic_name, numbered(3))
    wait_until(lambda: len(runs.seen()) == 3, "the first records are read", 60)
    batches = len(runs.batches)
    produce_transaction(broker.bootstrap, topic_name, numbered(3), commit=False)
    wait_until(lambda: (topic_name, 0, 3, 7, 0) in runs.statements, "the aborted range is stated", 60)
    produce(broker.bootstrap, topic_name, numbered(1))
    wait_until(lambda: len(runs.seen()) == 4, "the last record is read", 60)
    query.processAllAvailable()
    assert len(runs.batches) == batches + 2
    query.stop()


def test_lost_records_reach_the_driver_as_what_they_are(broker: EmbeddedKafka, runs: Runs, topic_name: str) -> None:
    """DataLossError raised in a reading task is the same error in the driver."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, numbered(9))
    topic_id = _topic_id(broker, topic_name)
    delete_records(broker.bootstrap, topic_name, 0, 5)
    starts = json.dumps({topic_name: {"id": topic_id, "partitions": {"0": 2}}})
    given = options(broker, topic_name, starts=starts)
    found = caught(lambda: runs.available_now(given))
    assert type(found) is DataLossError
    assert f"Connector orders: records of {topic_name}-0" in found.message
    assert "on.data.loss=skip" in found.action


def test_a_recreated_topic_reaches_the_driver_as_what_it_is(broker: EmbeddedKafka, runs: Runs, topic_name: str) -> None:
    """SourceChangedError raised in the planner of a restarted stream is the same error in the driver."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, numbered(9))
    runs.available_now(options(broker, topic_name))
    delete_topic(broker.bootstrap, topic_name)
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, numbered(20))
    found = caught(lambda: runs.available_now(options(broker, topic_name)))
    assert type(found) is SourceChangedError
    assert "was recreated" in found.message


def test_a_wrong_option_reaches_the_driver_as_what_it_is(broker: EmbeddedKafka, spark: SparkSession) -> None:
    """ConfigError raised where Spark makes the source is the same error in the driver."""
    reader = spark.readStream.format(NAME).options(**options(broker, "t", tasks_max="none"))
    found = caught(reader.load)
    assert type(found) is ConfigError
    assert "tasks.max" in found.message


def _topic_id(broker: EmbeddedKafka, topic: str) -> str:
    return Admin({"bootstrap.servers": broker.bootstrap}).describe([topic])[topic].id
