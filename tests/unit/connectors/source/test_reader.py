"""What a consumer that was just made tells of the rest of a range."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from compactor.model.record import TopicPartition
from connectors.errors import UnreachableError
from connectors.kafka.client_settings import ClientSettings
from connectors.source import reader
from connectors.source.plan import ReadSplit, SourceRange
from connectors.source.reader import RangeCursor, nothing_left
from tests.support.clients import client_settings
from tests.support.memory.cluster import MemoryCluster
from tests.support.source_options import source_options

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
    monkeypatch.setattr(reader, "Consumer", Told)
    monkeypatch.setattr(reader, "_EMPTY_S", 0.05)
    monkeypatch.setattr(Told, "what", what)
    cursor = RangeCursor(SourceRange("t", "id", 0, 3, HI), 3, 5)
    found = nothing_left(client_settings({"bootstrap.servers": "127.0.0.1:1"}), [cursor])
    assert found == (frozenset([TopicPartition("t", 0)]) if empty else frozenset())


def test_where_nobody_waits_no_consumer_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would cost a connection."""
    monkeypatch.setattr(reader, "Consumer", None)
    assert nothing_left(ClientSettings({}), []) == frozenset()


class Stuck:
    """A session whose consumer is given nothing, and whose position stays where it was."""

    admin = None

    def __init__(self) -> None:
        self.consumer = self

    def assign(self, partitions: list[Any]) -> None: ...

    def pause(self, partitions: list[Any]) -> None: ...

    def consume(self, _count: int, _timeout: float) -> list[Message]:
        return []

    def position(self, partitions: list[Any]) -> list[Any]:
        return partitions


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    """Brokers on which topic t ends at HI, and a reader that is stuck below it and looks often."""

    @contextmanager
    def borrowed(_: ClientSettings, _request_s: float) -> Iterator[Stuck]:
        yield Stuck()

    cluster = MemoryCluster()
    cluster.put("t", (0, HI), topic_id="id")
    monkeypatch.setattr(reader, "borrowed", borrowed)
    monkeypatch.setattr(reader, "AdminTopics", lambda *_: cluster)
    monkeypatch.setattr(reader, "LOOK_S", 0.001)
    return cluster


@pytest.mark.parametrize("empty", [True, False])
def test_a_range_whose_rest_holds_nothing_is_finished(
    stuck: MemoryCluster, monkeypatch: pytest.MonkeyPatch, *, empty: bool
) -> None:
    """It is stated to its end, with the records that it had; another one is waited for, and then an error."""
    found = frozenset([TopicPartition("t", 0)]) if empty else frozenset()
    monkeypatch.setattr(reader, "nothing_left", lambda _, cursors: found & {cursor.key for cursor in cursors})
    read = reader.read(ReadSplit((SourceRange("t", "id", 0, 5, HI),)), source_options(topics=["t"], timeout=0.2))
    if not empty:
        with pytest.raises(UnreachableError, match="no progress on t-0 at offset 5"):
            list(read)
        return
    (statement,) = [row["range"] for batch in read for row in batch.to_pylist()]
    assert statement == {"topic_id": "id", "lo": 5, "hi": HI, "start": 5, "records": 0, "filtered": 0}
    assert stuck.requests > 0
