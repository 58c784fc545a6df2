"""Whose a message is: what a kept consumer may still have of another assignment is nobody's."""

from __future__ import annotations

import pytest
from confluent_kafka import Message

from compactor.errors import IngestError
from compactor.model.record import TopicPartition
from connectors.source.arrow_records import PartitionSlots

A0, A2, B0 = TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 0)
SPLITS = [[A0], [A2, A0], [A0, B0]]


def messages(*partitions: TopicPartition) -> list[Message]:
    return [Message(topic=tp.topic, partition=tp.partition, offset=at) for at, tp in enumerate(partitions)]


@pytest.mark.parametrize("split", SPLITS)
def test_each_message_has_the_slot_of_its_partition(split: list[TopicPartition]) -> None:
    """A slot is the place of the partition in its split."""
    sent = [*split, *reversed(split)]
    assert [split[slot] for slot in PartitionSlots(split).of(messages(*sent))] == sent


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("strange", [TopicPartition("c", 0), TopicPartition("a", 1), TopicPartition("a", 9)])
def test_a_message_that_was_not_asked_for_is_no_record_of_the_bundle(
    split: list[TopicPartition], strange: TopicPartition
) -> None:
    """Whatever its offset, and however many partitions are read: another topic's, or another partition's."""
    with pytest.raises(IngestError, match=f"{strange}: a record at offset 1 was not asked for"):
        PartitionSlots(split).of(messages(split[0], strange, split[-1]))
