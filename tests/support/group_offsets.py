"""Changes the committed offsets of a connector's group as an operator, a broker or another client does."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition

from compactor.model.position import Position, encode
from compactor.model.record import TopicPartition as Partition
from connectors.kafka.admin import Admin
from connectors.sinks.producer_session import read_positions
from tests.support.deployment import Deployment
from tests.support.kafka import TIMEOUT_S, admin


def delete_group(deployment: Deployment) -> None:
    """Deletes the group, as offsets.retention.minutes or `--delete-offsets` does."""
    client = admin(deployment.bootstrap)
    client.delete_consumer_groups([f"connect-{deployment.name}"])[f"connect-{deployment.name}"].result(TIMEOUT_S)


def reset_offsets(deployment: Deployment, offset: int) -> None:
    """Sets the group's offsets as `--reset-offsets` does, without keyfold's metadata."""
    group = f"connect-{deployment.name}"
    client = admin(deployment.bootstrap)
    wanted = ConsumerGroupTopicPartitions(
        group, [TopicPartition(deployment.topic, number, offset) for number in (0, 1)]
    )
    client.alter_consumer_group_offsets([wanted])[group].result(TIMEOUT_S)


def commit_like_a_sink(deployment: Deployment, offset: int) -> None:
    """Commits offsets as a Connect sink of the connector's name does at each flush."""
    settings = {"bootstrap.servers": deployment.bootstrap, "group.id": f"connect-{deployment.name}", "log_level": 0}
    consumer = Consumer(settings)
    try:
        consumer.commit(
            offsets=[TopicPartition(deployment.topic, number, offset) for number in (0, 1)], asynchronous=False
        )
    finally:
        consumer.close()


def positions(deployment: Deployment) -> dict[Partition, Position]:
    """What the group holds for both partitions of the topic, with its metadata read."""
    asked = [Partition(deployment.topic, number) for number in (0, 1)]
    found = read_positions(Admin({"bootstrap.servers": deployment.bootstrap}), f"connect-{deployment.name}", asked)
    return {tp: one for tp, one in found.items() if one is not None}


def hold(deployment: Deployment, wanted: Mapping[Partition, Position]) -> None:
    """Has the group hold these positions, with keyfold's metadata."""
    group = f"connect-{deployment.name}"
    held = [TopicPartition(*tp, one.group_offset, encode(one)) for tp, one in wanted.items()]
    client = admin(deployment.bootstrap)
    client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, held)])[group].result(TIMEOUT_S)
