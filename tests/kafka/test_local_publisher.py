"""Publishing from the worker's own process: its producers are kept from one publish to the next."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from compactor.errors import FencedError, PositionMovedError
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import OutputError, UnreachableError
from connectors.kafka.producers import QUEUE_BYTES, fence_all, transactional_id
from connectors.sinks.producer_session import Bucket, ProducerSession, QueryClients
from connectors.sinks.publisher import KEPT_MS, ChangelogPublisher, KeptSessions, LocalPublisher
from connectors.sinks.settings import TransactionLimits
from tests.support.clients import client_settings
from tests.support.clocks import ManualClock
from tests.support.kafka import create_topic, delete_topic, wait_until
from tests.support.publishing import Changelog, RunRecord, batch, source_offsets


class Local:
    """Publishes single records of a changelog, one plan after the other."""

    def __init__(self, changelog: Changelog) -> None:
        self.changelog = changelog
        self.sessions = KeptSessions()
        self.reached: dict[int, int | None] = {}

    def publish(self, offset: int, partition: int = 0, *, cancelled: bool = False, value: bytes = b"v") -> None:
        """Sends the record at `offset` as the fold up to behind it."""
        one, found = self.changelog, self.reached.get(partition)
        target = one.target(found or 0, offset + 1, partition, committed=found)
        publisher = LocalPublisher(one.publisher(), self.sessions, lambda: cancelled)
        records = batch(one.topic, [RunRecord(offset, value=value, partition=partition)])
        publisher.publish(one.plan(target), iter([records]))
        self.reached[partition] = offset + 1

    def session(self) -> ProducerSession:
        """The one that is kept."""
        found = self.sessions.take(0)
        assert found is not None
        self.sessions.put(0, found)
        return found


@pytest.fixture
def local(broker: EmbeddedKafka, tmp_path: Path, topic_name: str) -> Local:
    return Local(Changelog(broker.bootstrap, tmp_path, topic_name))


def seen(local: Local) -> list[int]:
    return source_offsets(local.changelog.read())


def test_the_next_publish_goes_on_with_the_same_producer(local: Local) -> None:
    """No new producer is made, and positions move with the records."""
    local.publish(0)
    first = local.session().producer
    local.publish(4)
    assert local.session().producer is first
    assert seen(local) == [0, 4]
    position = local.changelog.position()
    assert position is not None
    assert position.offset == 5


def test_a_record_larger_than_the_producers_queue_is_published(
    broker: EmbeddedKafka, tmp_path: Path, topic_name: str
) -> None:
    """The queue grows with the record, and the producer that has it is kept."""
    local = Local(Changelog(broker.bootstrap, tmp_path, topic_name, output_config={"max.message.bytes": 60_000_000}))
    large = Random(1).randbytes(QUEUE_BYTES + (8 << 20))
    local.publish(0)
    local.publish(1, value=large)
    grown = local.session().producer
    local.publish(2)
    assert local.session().producer is grown
    found = local.changelog.read()
    assert [one.value == large for one in found] == [False, True, False]
    assert source_offsets(found) == [0, 1, 2]


def test_a_producer_knows_all_outputs_of_its_bucket(local: Local) -> None:
    """Topics that take turns do not cost a new producer each time."""
    one = local.changelog
    other = f"{one.output}.2"
    create_topic(one.bootstrap, other, 1)
    ids = {one.output: one.output_id, other: one.admin.describe([other])[other].id}
    producers = []
    for offset, output in enumerate((one.output, other, one.output, other)):
        target = one.target(offset, offset + 1, committed=offset or None, output=output)
        publisher = LocalPublisher(replace(one.publisher(), output_ids=ids), local.sessions, lambda: False)
        publisher.publish(one.plan(target), iter([batch(one.topic, [RunRecord(offset)])]))
        producers.append(local.session().producer)
    assert producers[1] is not producers[0]
    assert producers[1] is producers[2] is producers[3]


def test_what_nobody_used_for_long_is_not_kept(broker: EmbeddedKafka, tmp_path: Path, topic_name: str) -> None:
    """The brokers may have moved since."""
    local, clock = Local(Changelog(broker.bootstrap, tmp_path, topic_name)), ManualClock()
    local.sessions = KeptSessions(clock)
    local.publish(0)
    first = local.session()
    clock.advance(KEPT_MS + 1)
    local.publish(1)
    assert local.session() is not first
    assert seen(local) == [0, 1]


def test_a_session_with_records_under_way_is_not_held_for_ever(local: Local) -> None:
    """Librdkafka keeps what it was given with a record that is never reported: that must not hold any client."""
    one = local.changelog
    clients = client_settings({"bootstrap.servers": one.bootstrap}, **{"bootstrap.servers": "127.0.0.1:1"})
    queries = QueryClients(one.connector, clients)
    session = ProducerSession(
        Bucket(connector=one.connector, plan=one.plan(one.target(0, 1)), storage=one.storage, output_ids={}),
        clients, TransactionLimits(), queries,
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    producer.produce(one.output, b"v", on_delivery=session.failed)
    held = weakref.ref(session)
    del producer, session
    gc.collect()
    assert held() is None
    queries.close()


def test_a_producer_that_was_shut_out_is_replaced(local: Local) -> None:
    """Whoever initialised the id meanwhile without being a newer owner: nothing is lost, and nothing sent twice."""
    local.publish(0)
    first = local.session().producer
    clients: dict[str, str | int] = {"bootstrap.servers": local.changelog.bootstrap}
    fence_all(clients, [transactional_id(local.changelog.connector, 0)])
    local.publish(4)
    assert local.session().producer is not first
    assert seen(local) == [0, 4]


def test_a_newer_owner_ends_it(local: Local) -> None:
    """A kept producer is not a way around the epoch."""
    local.publish(0)
    plan = local.changelog.plan(local.changelog.target(1, 2, committed=1))
    local.changelog.take_over()
    publisher = LocalPublisher(local.changelog.publisher(), local.sessions, lambda: False)
    with pytest.raises(FencedError, match="epoch 2 owns the connector"):
        publisher.publish(plan, iter([batch(local.changelog.topic, [RunRecord(1)])]))
    assert seen(local) == [0]
    assert local.sessions.take(0) is None


def test_a_position_that_was_moved_ends_it(local: Local) -> None:
    """Step 7 is taken for every plan."""
    local.publish(0)
    local.changelog.overwrite_position(7)
    with pytest.raises(PositionMovedError, match="holds 7"):
        local.publish(1)
    assert seen(local) == [0]


def test_an_output_that_was_recreated_ends_it(local: Local) -> None:
    """A kept producer would fill the new topic without a word."""
    local.publish(0)
    before = local.changelog.output_id
    publisher: ChangelogPublisher = local.changelog.publisher()
    delete_topic(local.changelog.bootstrap, local.changelog.output)
    create_topic(local.changelog.bootstrap, local.changelog.output, 1)
    wait_until(lambda: local.changelog.output_id != before, "the output is another one")
    plan = local.changelog.plan(local.changelog.target(1, 2, committed=1))
    with pytest.raises(OutputError, match="was recreated"):
        LocalPublisher(publisher, local.sessions, lambda: False).publish(
            plan, iter([batch(local.changelog.topic, [RunRecord(1)])])
        )


def test_partitions_that_the_output_got_since_are_written_to(
    broker: EmbeddedKafka, tmp_path: Path, topic_name: str
) -> None:
    """A producer looks for new partitions every five minutes: one that does not know them is not kept."""
    local = Local(Changelog(broker.bootstrap, tmp_path, topic_name, partitions=2, output_partitions=1))
    local.publish(0)
    local.changelog.admin.grow(local.changelog.output, 2)
    wait_until(
        lambda: local.changelog.admin.describe([local.changelog.output])[local.changelog.output].partitions == 2,
        "the output has grown",
    )
    local.publish(0, partition=1)
    assert sorted((one.partition, one.offset) for one in local.changelog.read()) == [(0, 0), (1, 0)]


def test_what_is_broken_off_waits_for_nobody(local: Local) -> None:
    """A stop does not wait for brokers that are away."""
    one = local.changelog
    publisher = ChangelogPublisher(
        connector=one.connector,
        clients=client_settings({"bootstrap.servers": one.bootstrap}, **{"bootstrap.servers": "127.0.0.1:1"}),
        storage=one.storage,
        output_ids={one.output: one.output_id},
        limits=TransactionLimits(deadline_s=600),
    )
    records = iter([batch(one.topic, [RunRecord(0)])])
    with pytest.raises(UnreachableError):
        LocalPublisher(publisher, local.sessions, lambda: True).publish(one.plan(one.target(0, 1)), records)
