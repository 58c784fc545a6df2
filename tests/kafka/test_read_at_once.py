"""Large ranges, read at once and one by one, on the real broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.kafka import consumers
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.consumers import AssignedConsumer
from connectors.source.plan import SourceRange
from connectors.source.reader import ReadParts, read
from tests.support.broker_source import AT_ONCE, ONE_BY_ONE, BrokerSource, Row, numbered_records
from tests.support.kafka import create_topic, produce

HEADERS = [("h", b"1"), ("g", None), ("h", b"")]


@pytest.fixture(autouse=True)
def _no_idle_consumers() -> Iterator[None]:
    consumers.close_idle()
    yield
    consumers.close_idle()


def rows(source: BrokerSource, ranges: Sequence[SourceRange], parts: ReadParts) -> list[Row]:
    """What is read: of each partition its records in their order, then the rows of ranges."""
    read_all = [row for batch in read(tuple(ranges), source.options, parts=parts) for row in batch.to_pylist()]
    return sorted(read_all, key=lambda row: (row["range"] is not None, row["partition"]))


def test_both_ways_read_the_same(broker: EmbeddedKafka, topic_name: str) -> None:
    """Of three partitions, with nulls and with headers that come in the middle; what is kept of a consumer takes turns.

    Ranges begin and end inside what the brokers send at once.
    """
    create_topic(broker.bootstrap, topic_name, partitions=3)
    for partition in range(3):
        plain = [*numbered_records(4_000, partition), (partition, None, b"v"), (partition, b"k", None)]
        with_headers = [(partition, b"k%d" % number, b"v", HEADERS) for number in range(2_000)]
        produce(broker.bootstrap, topic_name, [*plain, *with_headers, *plain])
    source = BrokerSource(broker.bootstrap, topic_name)
    ranges = [source.range(topic_name, 3, 9_000 + partition, partition) for partition in range(3)]
    expected = rows(source, ranges, ONE_BY_ONE)
    assert len(expected) == sum(each.size for each in ranges) + 3
    (kept,) = consumers.POOL.idle()
    for parts in (AT_ONCE, AT_ONCE, ONE_BY_ONE):
        assert rows(source, ranges, parts) == expected
        assert consumers.POOL.idle() == [kept]


@pytest.mark.parametrize(("at_once", "has_queue"), [(1_000, True), (1_001, False)])
def test_large_ranges_alone_are_read_at_once(
    broker: EmbeddedKafka, topic_name: str, *, at_once: int, has_queue: bool
) -> None:
    """The offsets of all ranges count; the queue is closed before the consumer is kept."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, numbered_records(1_000))
    source, used = BrokerSource(broker.bootstrap, topic_name), []

    @contextmanager
    def borrowed(clients: ClientSettings, request_s: float) -> Iterator[AssignedConsumer]:
        with consumers.borrowed(clients, request_s) as consumer:
            used.append(consumer)
            yield consumer

    parts = ReadParts(borrowed=borrowed, at_once=at_once)
    reading = read((source.range(topic_name, 0, 1_000),), source.options, parts=parts)
    next(reading)
    assert [consumer.queue is not None for consumer in used] == [has_queue]
    list(reading)
    assert [consumer.queue for consumer in used] == [None]
