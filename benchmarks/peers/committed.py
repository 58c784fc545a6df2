"""How far a group's positions are: the one thing that every peer moves with what it has sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from functools import cache
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

_POLL_S: Final = 0.1
_TIMEOUT_S: Final = 30.0
# Reading uncommitted, it is told at once what is committed, instead of waiting for open transactions to end.
_ASKING: Final = {"enable.auto.commit": False, "isolation.level": "read_uncommitted", "log_level": 0}


@cache
def client(bootstrap: str) -> AdminClient:
    """The one admin client of a broker: one that is let go while an answer is under way takes the process along."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    """The end of each partition of `topic`. Raises KafkaException, also while one has no leader."""
    admin = client(bootstrap)
    count = len(admin.list_topics(topic, _TIMEOUT_S).topics[topic].partitions)
    answers = admin.list_offsets({TopicPartition(topic, number): OffsetSpec.latest() for number in range(count)})
    wait(answers.values(), _TIMEOUT_S)
    return {partition.partition: answer.result(_TIMEOUT_S).offset for partition, answer in answers.items()}


def reached(bootstrap: str, group: str, topic: str) -> Callable[[], bool]:
    """A condition that waits a moment and says whether `group` has committed the ends that `topic` has now."""
    return covers(bootstrap, group, topic, ends(bootstrap, topic))


def covers(
    bootstrap: str, group: str, topic: str, wanted: Mapping[int, int], poll_s: float = _POLL_S
) -> Callable[[], bool]:
    """The same for ends that are known: asking for those of a thousand partitions takes its time."""
    asked = [TopicPartition(topic, number) for number in wanted]
    # A consumer that never joins: an admin client that asks a coordinator while it begins takes the process along.
    consumer = Consumer({**_ASKING, "bootstrap.servers": bootstrap, "group.id": group})

    def look() -> bool:
        time.sleep(poll_s)
        try:
            found = consumer.committed(asked, _TIMEOUT_S)
        except KafkaException:  # the group's coordinator is not there yet
            return False
        held = {one.partition: one.offset for one in found if one.error is None}
        return all(held.get(number, -1) >= end for number, end in wanted.items() if end)

    return look
