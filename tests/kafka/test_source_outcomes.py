"""What may become of a source topic, each on the real broker, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka, free_port
from connectors.errors import DataLossError, SourceChangedError, UnreachableError
from connectors.kafka import consumers
from connectors.source.plan import SourceRange, TopicOffsets
from connectors.source.reader import read
from tests.support import broker_source
from tests.support.broker_source import BrokerSource, numbered_records, offsets, range_reports
from tests.support.clients import client_settings
from tests.support.kafka import (
    add_partitions,
    admin,
    create_topic,
    delete_records,
    delete_topic,
    produce,
    produce_transaction,
    wait_until,
)


@pytest.fixture(autouse=True, params=[broker_source.AT_ONCE, broker_source.ONE_BY_ONE], ids=["at-once", "one-by-one"])
def _both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    broker_source.WAY.parts = request.param
    yield
    del broker_source.WAY.parts
    consumers.close_idle()


def test_lost_records_are_an_error(broker: EmbeddedKafka, topic_name: str) -> None:
    """With on.data.loss=fail a log start past our position names partition, our offset, log start and the choices."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, numbered_records(20))
    delete_records(broker.bootstrap, topic_name, 0, 12)
    source = BrokerSource(broker.bootstrap, topic_name, connector="orders")
    with pytest.raises(DataLossError) as caught:
        source.read(source.range(topic_name, 5, 20))
    for word in ("orders", f"{topic_name}-0", "offset 5", "starts at 12"):
        assert word in caught.value.message
    assert "on.data.loss=skip" in caught.value.action


@pytest.mark.parametrize(
    ("lo", "hi", "expected", "statement"),
    [(5, 20, list(range(12, 20)), (5, 20, 12, 8)), (5, 12, [], (5, 12, 12, 0)), (5, 9, [], (5, 9, 9, 0))],
)
def test_lost_records_are_a_stated_gap(
    broker: EmbeddedKafka, topic_name: str, lo: int, hi: int, expected: list[int], statement: tuple[int, ...]
) -> None:
    """With on.data.loss=skip reading begins at the log start and the range row says so; other ranges are whole."""
    create_topic(broker.bootstrap, topic_name, 2)
    produce(broker.bootstrap, topic_name, [*numbered_records(20), *numbered_records(20, 1)])
    delete_records(broker.bootstrap, topic_name, 0, 12)
    source = BrokerSource(broker.bootstrap, topic_name, skip_lost=True)
    rows = source.read(source.range(topic_name, lo, hi), source.range(topic_name, 0, 20, 1))
    assert offsets(rows) == expected
    assert offsets(rows, 1) == list(range(20))
    assert sorted(range_reports(rows)) == [(0, 20, 0, 20), statement]


def test_a_gap_in_the_middle_splits_the_range(broker: EmbeddedKafka, topic_name: str) -> None:
    """Records lost while a range is read: what came before is stated, and the next statement begins with the gap."""
    create_topic(broker.bootstrap, topic_name)
    large = [(0, b"k", bytes(10_000))] * 3000
    produce(broker.bootstrap, topic_name, large, **{"batch.num.messages": 10})
    # A consumer that keeps next to nothing in its queue, so that what is deleted was not fetched before.
    tight = {
        "queued.min.messages": 1,
        "queued.max.messages.kbytes": 1,
        "fetch.message.max.bytes": 1000,
    }
    clients = client_settings({"bootstrap.servers": broker.bootstrap, **tight})
    source = BrokerSource(broker.bootstrap, topic_name, skip_lost=True, clients=clients)
    reading = read((source.range(topic_name, 0, 3000),), source.options, parts=broker_source.WAY.parts)
    rows = next(reading).to_pylist()
    delete_records(broker.bootstrap, topic_name, 0, 2500)
    rows += [row for batch in reading for row in batch.to_pylist()]
    (lo, cut, start, before), last = range_reports(rows)
    assert (lo, start, before) == (0, 0, cut)
    assert 0 < cut < 2500
    assert last == (cut, 3000, 2500, 500)
    assert offsets(rows) == [*range(cut), *range(2500, 3000)]


@pytest.mark.parametrize("loss", ["fail", "skip"])
def test_a_recreated_topic_is_an_error(broker: EmbeddedKafka, topic_name: str, loss: str) -> None:
    """A topic of the same name with another id is never read on, not even where the offsets exist."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, numbered_records(10))
    source = BrokerSource(broker.bootstrap, topic_name, skip_lost=loss == "skip")
    before = source.planner.latest(source.planner.initial(), None)
    old = source.range(topic_name, 0, 10)
    delete_topic(broker.bootstrap, topic_name)
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, numbered_records(50))
    with pytest.raises(SourceChangedError, match="recreated"):
        source.read(old)
    with pytest.raises(SourceChangedError, match="recreated"):
        wait_until(lambda: source.planner.latest(before, None) is None, "the planner sees the new id")


def test_a_log_that_ends_below_our_position_is_an_error(broker: EmbeddedKafka, topic_name: str) -> None:
    """A position that the log does not have (any more) is refused by reader and planner."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, numbered_records(10))
    source = BrokerSource(broker.bootstrap, topic_name)
    with pytest.raises(SourceChangedError, match="ends at offset 10, below our position 30"):
        source.read(source.range(topic_name, 20, 30))
    start = {topic_name: TopicOffsets(source.range(topic_name, 0, 1).topic_id, {0: 11})}
    with pytest.raises(SourceChangedError, match="ends at offset 10, below our position 11"):
        source.planner.latest(start, None)


def test_a_deleted_topic_is_closed(
    broker: EmbeddedKafka, new_topic_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets stay and the others go on; a range planned before is a loss, or with skip a gap to its end."""
    monkeypatch.setattr("connectors.kafka.admin.GONE_AFTER_MS", 3_000)
    gone, kept = (create_topic(broker.bootstrap, new_topic_name(stem)) for stem in ("gone", "kept"))
    for name in (gone, kept):
        produce(broker.bootstrap, name, numbered_records(10))
    source = BrokerSource(broker.bootstrap, gone, kept, timeout=30.0)
    start = source.planner.latest(source.planner.initial(), None)
    planned = source.range(gone, 0, 10)
    delete_topic(broker.bootstrap, gone)
    produce(broker.bootstrap, kept, numbered_records(1))
    wait_until(lambda: source.planner.latest(start, None)[kept].partitions == {0: 11}, "the other topic goes on")
    assert source.planner.latest(start, None)[gone] == start[gone]
    with pytest.raises(DataLossError, match="was deleted before offsets 0 to 10"):
        source.read(planned)
    skipping = BrokerSource(broker.bootstrap, gone, kept, skip_lost=True)
    assert range_reports(skipping.read(planned)) == [(0, 10, 10, 0)]


def test_new_partitions_and_topics_are_found(broker: EmbeddedKafka, new_topic_name: Callable[[str], str]) -> None:
    """A partition added to a topic is read from 0, and a new topic that the pattern matches from its log start."""
    first = create_topic(broker.bootstrap, new_topic_name("grow-a"))
    pattern = first.replace("grow-a", "grow-[ab]")
    produce(broker.bootstrap, first, numbered_records(5))
    source = BrokerSource(broker.bootstrap, regex=pattern)
    start = source.planner.latest(source.planner.initial(), None)
    add_partitions(broker.bootstrap, first, 2)
    second = create_topic(broker.bootstrap, first.replace("grow-a", "grow-b"))
    produce(broker.bootstrap, first, numbered_records(3, 1))
    produce(broker.bootstrap, second, numbered_records(4))

    def complete() -> bool:
        nonlocal start
        start = dict(source.planner.latest(start, None))
        return {name: topic.partitions for name, topic in start.items()} == {first: {0: 5, 1: 3}, second: {0: 4}}

    wait_until(complete, "partition and topic are planned")
    assert offsets(source.read(source.range(first, 0, 3, 1)), 1) == [0, 1, 2]


def test_internal_and_unknown_topics_are_not_made_or_matched(broker: EmbeddedKafka, topic_name: str) -> None:
    """Asking for a topic that does not exist does not create it, and no pattern matches Kafka's own topics."""
    source = BrokerSource(broker.bootstrap, topic_name)
    assert source.planner.initial() == {}
    assert topic_name not in admin(broker.bootstrap).list_topics(timeout=10).topics
    produce_transaction(broker.bootstrap, create_topic(broker.bootstrap, topic_name), numbered_records(1))
    assert not [name for name in BrokerSource(broker.bootstrap, regex=".*").planner.initial() if name[:2] == "__"]


def test_a_broker_that_is_away_is_named(topic_name: str) -> None:
    """Where nothing answers, plan and read fail after their time, naming topic, partition and offset."""
    source = BrokerSource(f"127.0.0.1:{free_port()}", topic_name, timeout=1.5)
    with pytest.raises(UnreachableError, match=r"for [12] s"):
        source.planner.initial()
    with pytest.raises(UnreachableError, match=f"{topic_name}-3 at offset 7"):
        source.read(SourceRange(topic_name, "id", 3, 7, 9))


def test_a_broken_read_leaves_no_consumer_behind(broker: EmbeddedKafka, topic_name: str) -> None:
    """A consumer whose task did not end well is dropped; one whose task did is taken again."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, numbered_records(100))
    source = BrokerSource(broker.bootstrap, topic_name, limits={"batch_bytes": 50})
    whole = source.range(topic_name, 0, 100)
    reading = read((whole,), source.options, parts=broker_source.WAY.parts)
    next(reading)
    reading.close()
    assert consumers.POOL.idle() == []
    assert offsets(source.read(whole)) == list(range(100))
    (kept,) = consumers.POOL.idle()
    assert offsets(source.read(whole)) == list(range(100))
    assert consumers.POOL.idle() == [kept]
