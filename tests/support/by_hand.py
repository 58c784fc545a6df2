"""What an operator, a broker's retention or another client does to a connector's group."""

from __future__ import annotations

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition

from tests.support.kafka import TIMEOUT_S, admin
from tests.support.place import Place


def forget_positions(place: Place) -> None:
    """What offsets.retention.minutes or `--delete-offsets` does."""
    client = admin(place.bootstrap)
    client.delete_consumer_groups([f"connect-{place.name}"])[f"connect-{place.name}"].result(TIMEOUT_S)


def set_positions(place: Place, offset: int) -> None:
    """What `--reset-offsets` does: offsets without metadata of ours."""
    group = f"connect-{place.name}"
    client = admin(place.bootstrap)
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(place.topic, number, offset) for number in (0, 1)])
    client.alter_consumer_group_offsets([wanted])[group].result(TIMEOUT_S)


def commit_as_a_sink(place: Place, offset: int) -> None:
    """What a Connect sink of the connector's name does at each of its flushes."""
    settings = {"bootstrap.servers": place.bootstrap, "group.id": f"connect-{place.name}", "log_level": 0}
    consumer = Consumer(settings)
    try:
        consumer.commit(offsets=[TopicPartition(place.topic, number, offset) for number in (0, 1)], asynchronous=False)
    finally:
        consumer.close()
