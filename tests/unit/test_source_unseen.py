"""What a consumer that was just made tells of the rest of a range."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from compactor.record import TopicPartition
from connectors.kafka.consumers import Clients
from connectors.source import unseen
from connectors.source.plan import Range
from connectors.source.progress import Cursor
from connectors.source.unseen import nothing_left

HI = 7


def message(partition: int, offset: int, error: int | None = None) -> Message:
    told = None if error is None else KafkaError(error)
    return Message(topic="t", partition=partition, offset=offset, error=told)


def end(partition: int, offset: int) -> Message:
    return message(partition, offset, KafkaError._PARTITION_EOF)


class Told:
    """A consumer that tells `what`, and then nothing more."""

    what: list[Message] = []  # noqa: RUF012  # one for each test

    def __init__(self, settings: dict[str, Any]) -> None:
        assert settings["isolation.level"] == "read_committed"
        assert settings["enable.partition.eof"] is True
        self._left = list(self.what)

    def assign(self, partitions: list[Any]) -> None:
        assert [(one.partition, one.offset) for one in partitions] == [(0, 5)]

    def consume(self, _count: int, _timeout: float) -> list[Message]:
        told, self._left = self._left[:1], self._left[1:]
        return told

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("what", "empty"),
    [
        ([], False),
        ([end(0, 7)], True),
        ([end(0, 6)], False),
        ([message(0, 6), end(0, 7)], False),
        ([message(0, 9)], True),
        ([Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN)), end(0, 7)], True),
        ([message(0, 7, KafkaError._BAD_MSG), end(0, 7)], False),
        ([end(1, 7)], False),
    ],
)
def test_only_the_first_thing_delivered_counts(
    monkeypatch: pytest.MonkeyPatch, what: list[Message], *, empty: bool
) -> None:
    """The end, or a record behind it; not what comes after a record of the rest, or after one that cannot be read."""
    monkeypatch.setattr(unseen, "Consumer", Told)
    monkeypatch.setattr(unseen, "_ASKED_S", 0.05)
    monkeypatch.setattr(Told, "what", what)
    cursor = Cursor(Range("t", "id", 0, 3, HI), 3, 5)
    found = nothing_left(Clients("c", {"bootstrap.servers": "127.0.0.1:1"}), [cursor])
    assert found == (frozenset([TopicPartition("t", 0)]) if empty else frozenset())


def test_where_nobody_waits_no_consumer_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would cost a connection."""
    monkeypatch.setattr(unseen, "Consumer", None)
    assert nothing_left(Clients("c", {}), []) == frozenset()
