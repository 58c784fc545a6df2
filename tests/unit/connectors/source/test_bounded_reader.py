"""What a bounded read keeps of a portion in which an error came; without a broker."""

from __future__ import annotations

import time
from typing import Any, cast
from unittest.mock import Mock

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as Partition

from connectors.source.plan import SourceRange
from connectors.source.range_cursors import RangeCursor
from connectors.source.reader import BoundedRead, ReadBudget

HI = 7


def cursor(part: SourceRange, owner: int = 0) -> RangeCursor:
    return RangeCursor(part, part.lo, part.lo, owner=owner)


def test_a_portion_with_an_error_is_left_though_the_position_passes_it() -> None:
    """Librdkafka goes on behind a batch that it cannot read: nothing of that portion may be stated."""
    cursors = [cursor(SourceRange(name, "id", 0, 0, HI), owner) for owner, name in enumerate(("bad", "sound"))]
    error = Message(topic="bad", partition=0, offset=0, error=KafkaError(KafkaError._BAD_MSG))
    consumer = Mock()
    consumer.consumer.consume.side_effect = [[error], [], []]
    consumer.consumer.position.side_effect = lambda wanted: [Partition(one.topic, one.partition, HI) for one in wanted]
    read = BoundedRead("c", cursors, cast("Any", consumer), ReadBudget(idle_s=0.0))
    read.run(time.monotonic() + 10)
    assert read.stated(0) == []
    assert [part.hi for part, _, _ in read.stated(1)] == [HI]


def test_only_the_partitions_that_a_poll_brought_are_asked_for_their_positions() -> None:
    """Asking ten thousand partitions after each poll is what took the time; after an empty one all are asked."""
    consumer, read = _reading([[_record(0)], [_record(1)], []])
    read.run(time.monotonic() + 10)
    assert _numbers(consumer.consumer.position) == [[0], [1], [2]]
    assert not consumer.pause.called, "librdkafka is waited for with each pause, and these bring nothing more"


def test_a_partition_that_brings_records_behind_its_range_is_paused() -> None:
    """What goes on behind its range would fill the queue, and keep those from being asked that no record ends."""
    consumer, read = _reading([[_record(0)], [_record(0, 1), _record(1)], [_record(0, 2)], []])
    read.run(time.monotonic() + 10)
    assert _numbers(consumer.pause)[0] == [0]
    assert _numbers(consumer.consumer.position) == [[0], [1], [2]]
    assert [batch.num_rows for batch in read.records[0]] == [1, 1], "none from after the ranges"
    assert [(part.partition, part.hi, records) for part, _, records in read.stated(0)] == [
        (0, 1, 1),
        (1, 1, 1),
        (2, 1, 0),
    ]


def _reading(polls: list[list[Message]]) -> tuple[Any, BoundedRead]:
    """Returns a consumer that gives `polls`, one after the other, and a read of one record of three partitions."""
    cursors = [cursor(SourceRange("t", "id", number, 0, 1)) for number in range(3)]
    consumer: Any = Mock()
    consumer.consumer.consume.side_effect = polls
    consumer.consumer.position.side_effect = lambda wanted: [Partition(one.topic, one.partition, 1) for one in wanted]
    return consumer, BoundedRead("c", cursors, consumer, ReadBudget())


def _numbers(asked: Any) -> list[list[int]]:
    """Returns the partitions' numbers of each call of a mock."""
    return [[one.partition for one in call.args[0]] for call in asked.call_args_list]


def _record(partition: int, offset: int = 0) -> Message:
    return Message(topic="t", partition=partition, offset=offset, key=b"k", value=b"v", timestamp=(1, 1))
