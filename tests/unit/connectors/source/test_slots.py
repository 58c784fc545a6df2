"""Whose a message is: what a kept consumer may still have of another assignment is nobody's."""

from __future__ import annotations

import pytest
from confluent_kafka import Message

from compactor.errors import IngestError
from compactor.model.record import TopicPartition
from connectors.source.arrow_records import Slots

A0, A2, B0 = TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 0)
BUNDLES = [[A0], [A2, A0], [A0, B0]]


def messages(*partitions: TopicPartition) -> list[Message]:
    return [Message(topic=tp.topic, partition=tp.partition, offset=at) for at, tp in enumerate(partitions)]


@pytest.mark.parametrize("bundle", BUNDLES)
def test_each_message_has_the_slot_of_its_partition(bundle: list[TopicPartition]) -> None:
    """By the place of the partition in its bundle."""
    sent = [*bundle, *reversed(bundle)]
    assert [bundle[slot] for slot in Slots(bundle).of(messages(*sent))] == sent


@pytest.mark.parametrize("bundle", BUNDLES)
@pytest.mark.parametrize("strange", [TopicPartition("c", 0), TopicPartition("a", 1), TopicPartition("a", 9)])
def test_a_message_that_was_not_asked_for_is_no_record_of_the_bundle(
    bundle: list[TopicPartition], strange: TopicPartition
) -> None:
    """Whatever its offset, and however many partitions are read: another topic's, or another partition's."""
    with pytest.raises(IngestError, match=f"{strange}: a record at offset 1 was not asked for"):
        Slots(bundle).of(messages(bundle[0], strange, bundle[-1]))
