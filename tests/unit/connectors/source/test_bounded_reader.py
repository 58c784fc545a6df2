"""What a bounded read keeps of a portion in which an error came; without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as Partition

from compactor.model.record import TopicPartition
from connectors.clock import Deadline, LoopClock
from connectors.source.assignment import PortionSplit
from connectors.source.bounded_reader import BoundedRead, ReadBudget
from connectors.source.plan import SourceRange
from tests.support.clocks import ManualClock
from tests.support.memory.admin import MemoryAdmin
from tests.support.source_options import source_options

Rows = list[dict[str, Any]]


def consumer_of(polls: Sequence[list[Message]], hi: int) -> Any:
    """A consumer that gives `polls`, one after the other, and stands at `hi` in every partition."""
    consumer: Any = Mock()
    consumer.admin = MemoryAdmin({TopicPartition(name, 0): hi for name in ("t", "bad", "sound")})
    consumer.consumer.consume.side_effect = polls
    consumer.consumer.position.side_effect = lambda wanted: [
        Partition(each.topic, each.partition, hi) for each in wanted
    ]
    return consumer


def read(consumer: Any, *portions: Sequence[SourceRange], budget: ReadBudget | None = None) -> dict[int, Rows]:
    """The rows that are read of each portion, by number."""
    options = source_options(topics=["t"])
    group = [PortionSplit(number, options, tuple(ranges), options.clients) for number, ranges in enumerate(portions)]
    bounded = BoundedRead(group, budget or ReadBudget(), Deadline(10), LoopClock(500))
    for _, cursors in bounded.shares():
        bounded.run(cursors, consumer)
    return {
        portion.portion: [row for batch in batches for row in batch.to_pylist()]
        for portion, batches in bounded.answers()
    }


def test_a_portion_with_an_error_is_left_though_the_position_passes_it() -> None:
    """Librdkafka goes on after a batch that it cannot read: nothing of that portion may be stated."""
    error = Message(topic="bad", partition=0, offset=0, error=KafkaError(KafkaError._BAD_MSG))
    bad, sound = (SourceRange(name, f"id-{name}", 0, 0, 7) for name in ("bad", "sound"))
    rows = read(consumer_of([[error], [], []], 7), [bad], [sound], budget=ReadBudget(idle_s=0.0))
    assert {number: [row["range"]["hi"] for row in each] for number, each in rows.items()} == {1: [7]}


THREE = [SourceRange("t", "id-t", number, 0, 1) for number in range(3)]
"""One record of each of three partitions."""


def test_only_the_partitions_that_a_poll_brought_are_asked_for_their_positions() -> None:
    """Asking ten thousand partitions after each poll is what took the time; after an empty one all are asked."""
    consumer = consumer_of([[_record(0)], [_record(1)], []], 1)
    read(consumer, THREE)
    assert _numbers(consumer.consumer.position) == [[0], [1], [2]]
    assert not consumer.pause.called, "librdkafka is waited for with each pause, and these bring nothing more"


def test_a_partition_that_brings_records_after_its_range_is_paused() -> None:
    """What comes after its range would fill the queue, and keep those from being asked that no record ends."""
    consumer = consumer_of([[_record(0)], [_record(0, 1), _record(1)], [_record(0, 2)], []], 1)
    rows = read(consumer, THREE)[0]
    assert _numbers(consumer.pause)[0] == [0]
    assert _numbers(consumer.consumer.position) == [[0], [1], [2]]
    assert [(row["partition"], row["offset"]) for row in rows if not row["range"]] == [(0, 0), (1, 0)]
    assert [(row["partition"], row["range"]["hi"], row["range"]["records"]) for row in rows if row["range"]] == [
        (0, 1, 1),
        (1, 1, 1),
        (2, 1, 0),
    ]


def test_a_topic_that_is_another_by_now_states_nothing() -> None:
    """What was read may be the other one's."""
    recreated = SourceRange("bad", "another", 0, 0, 1)
    rows = read(consumer_of([[_record(0)], []], 1), THREE[:1], [recreated])
    assert set(rows) == {0}


def test_of_two_ids_of_a_topic_only_that_of_now_is_stated() -> None:
    """One connector has noticed that the topic was recreated, and another one has not yet."""
    before, now = SourceRange("t", "before", 0, 0, 1), SourceRange("t", "id-t", 1, 0, 1)
    rows = read(consumer_of([[_record(0), _record(1)]], 1), [before], [now])
    assert set(rows) == {1}


def _numbers(asked: Any) -> list[list[int]]:
    """Returns the partitions' numbers of each call of a mock."""
    return [[each.partition for each in call.args[0]] for call in asked.call_args_list]


def _record(partition: int, offset: int = 0) -> Message:
    return Message(topic="t", partition=partition, offset=offset, key=b"k", value=b"v", timestamp=(1, 1))


def test_polls_that_the_process_held_up_leave_no_portion() -> None:
    """A process that stood still for its whole budget goes on to read."""
    clock = ManualClock()

    def consume(*_: object) -> list[Message]:
        clock.advance(6_000)
        return []

    consumer = consumer_of([], 1)
    consumer.consumer.consume.side_effect = consume
    options = source_options(topics=["t"])
    group = [PortionSplit(0, options, (SourceRange("t", "id-t", 0, 0, 1),), options.clients)]
    running = LoopClock(500, 6_000, clock)
    bounded = BoundedRead(group, ReadBudget(), Deadline(2.0, running), running)
    consumer.consumer.position.side_effect = lambda wanted: [
        Partition(each.topic, each.partition, int(consumer.consumer.consume.call_count == 2)) for each in wanted
    ]
    for _, cursors in bounded.shares():
        bounded.run(cursors, consumer)
    assert consumer.consumer.consume.call_count == 2, "The second poll came although 6 s had passed in the first."
    assert [portion.portion for portion, _ in bounded.answers()] == [0]
