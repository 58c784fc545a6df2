"""What a bounded read keeps of a portion in which an error came; without a broker."""

from __future__ import annotations

import time
from typing import Any, cast
from unittest.mock import Mock

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as Partition

from connectors.source.bounded_reader import ReadBudget, _BoundedRead
from connectors.source.micro_batches import PortionSplit
from connectors.source.plan import ReadSplit, SourceRange
from tests.support.source_options import source_options

HI = 7


def test_a_portion_with_an_error_is_left_though_the_position_passes_it() -> None:
    """Librdkafka goes on behind a batch that it cannot read: nothing of that portion may be stated."""
    options = source_options(topics=["bad", "sound"])
    portions = [
        PortionSplit(number, options, ReadSplit((SourceRange(name, "id", 0, 0, HI),)), options.clients)
        for number, name in enumerate(("bad", "sound"))
    ]
    error = Message(topic="bad", partition=0, offset=0, error=KafkaError(KafkaError._BAD_MSG))
    consumer = Mock()
    consumer.consumer.consume.side_effect = [[error], [], []]
    consumer.consumer.position.side_effect = lambda wanted: [Partition(one.topic, one.partition, HI) for one in wanted]
    read = _BoundedRead(portions, cast("Any", consumer), ReadBudget(idle_s=0.0))
    read.run(time.monotonic() + 10)
    assert read.batches(0) == []
    assert [row["range"]["hi"] for batch in read.batches(1) for row in batch.to_pylist()] == [HI]


def test_only_the_partitions_that_a_poll_brought_are_asked_for_their_positions() -> None:
    """Asking ten thousand partitions after each poll is what took the time; after an empty one all are asked."""
    options = source_options(topics=["t"])
    split = ReadSplit(tuple(SourceRange("t", "id", number, 0, 1) for number in range(3)))
    consumer = Mock()
    consumer.consumer.consume.side_effect = [[_record(0)], [_record(1)], []]
    consumer.consumer.position.side_effect = lambda wanted: [Partition(one.topic, one.partition, 1) for one in wanted]
    read = _BoundedRead([PortionSplit(0, options, split, options.clients)], cast("Any", consumer), ReadBudget())
    read.run(time.monotonic() + 10)
    asked = [[one.partition for one in call.args[0]] for call in consumer.consumer.position.call_args_list]
    assert asked == [[0], [1], [2]]
    paused = [[one.partition for one in call.args[0]] for call in consumer.pause.call_args_list]
    assert paused == [[0], [1]], "the last one is followed by no poll"


def _record(partition: int) -> Message:
    return Message(topic="t", partition=partition, offset=0, key=b"k", value=b"v", timestamp=(1, 1))
