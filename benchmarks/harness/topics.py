"""Topics of the broker that is measured on: made, asked for their ends, and for what a group has committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import wait
from functools import cache
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

_POLL_S: Final = 0.1
_TIMEOUT_S: Final = 30.0
_CREATE_S: Final = 60.0
# With read_uncommitted the broker answers at once instead of waiting for open transactions to end.
_CONSUMER: Final = {"enable.auto.commit": False, "isolation.level": "read_uncommitted", "log_level": 0}


@cache
def admin(bootstrap: str) -> AdminClient:
    """Returns the one admin client of a broker: closing one while a request is in flight crashes the process."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create_topic(bootstrap: str, topic: str, partitions: int, policy: str = "delete") -> None:
    """Makes an empty topic that removes nothing by age; returns once its partitions have leaders."""
    config = {"cleanup.policy": policy, "retention.ms": "-1"}
    new = NewTopic(topic, partitions, 1, config=config)
    admin(bootstrap).create_topics([new])[topic].result(_CREATE_S)
    deadline = time.monotonic() + _CREATE_S
    while True:
        try:
            end_offsets(bootstrap, topic)
            return
        except KafkaException:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)


def end_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """Returns the end offset of each partition of `topic`.

    Raises:
        KafkaException: the broker refused it, or a partition has no leader yet.
    """
    client = admin(bootstrap)
    count = len(client.list_topics(topic, _TIMEOUT_S).topics[topic].partitions)
    answers = client.list_offsets({TopicPartition(topic, number): OffsetSpec.latest() for number in range(count)})
    wait(answers.values(), _TIMEOUT_S)
    return {partition.partition: answer.result(_TIMEOUT_S).offset for partition, answer in answers.items()}


def all_have_records(bootstrap: str, topics: Collection[str], poll_s: float = _POLL_S) -> bool:
    """Whether each of `topics` is there and has a committed record, asked after `poll_s` seconds; makes no topic."""
    time.sleep(poll_s)
    client = admin(bootstrap)
    there = client.list_topics(timeout=_TIMEOUT_S).topics
    if not set(topics) <= set(there):
        return False
    wanted = {TopicPartition(name, one): OffsetSpec.latest() for name in topics for one in there[name].partitions}
    answers = client.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED)
    wait(answers.values(), _TIMEOUT_S)
    try:
        filled = {asked.topic for asked, answer in answers.items() if answer.result(_TIMEOUT_S).offset > 0}
    except KafkaException:  # a partition has no leader yet
        return False
    return filled == set(topics)


def committed_to_end(bootstrap: str, group: str, topic: str) -> Callable[[], bool]:
    """Returns a condition: `group` has committed the end offsets that `topic` has now."""
    return committed(bootstrap, group, topic, end_offsets(bootstrap, topic))


def committed(
    bootstrap: str, group: str, topic: str, offsets: Mapping[int, int], poll_s: float = _POLL_S
) -> Callable[[], bool]:
    """Returns a condition, which waits `poll_s` seconds: `group` has committed at least `offsets` of `topic`.

    Every peer commits its positions with its output, so that they show its progress.
    """
    partitions = [TopicPartition(topic, number) for number in offsets]
    # A consumer that never joins: an admin client that asks a starting coordinator crashes the process.
    consumer = Consumer({**_CONSUMER, "bootstrap.servers": bootstrap, "group.id": group})

    def reached() -> bool:
        time.sleep(poll_s)
        try:
            found = consumer.committed(partitions, _TIMEOUT_S)
        except KafkaException:  # the group has no coordinator yet
            return False
        held = {one.partition: one.offset for one in found if one.error is None}
        return all(held.get(number, -1) >= offset for number, offset in offsets.items() if offset)

    return reached


def send(producer: Producer, topic: str, value: bytes | None, key: bytes, partition: int) -> None:
    """Gives one record to `producer`, as soon as its queue has room."""
    while True:
        try:
            return producer.produce(topic, value, key, partition)
        except BufferError:
            producer.poll(0.1)
