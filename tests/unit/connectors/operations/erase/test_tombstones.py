"""What is sent to the source for each value that is kept, and what the brokers may answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message, Producer

from connectors.errors import NotAllowedError, UnreachableError
from connectors.operations.erase.receipt import Tombstone
from connectors.operations.erase.tombstones import Deletion, ToDelete, send

CONFIG = {"bootstrap.servers": "broker:9092"}


class _Acknowledged:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


class SlowProducer:
    """Acknowledges what it was given at a flush, refuses it with `error` from record `first` on, or never answers."""

    def __init__(self, error: int | None = None, *, is_silent: bool = False, room: int = 100, first: int = 0) -> None:
        self.error = error
        self.first = first
        self.is_silent = is_silent
        self.room = room
        self.rows: list[tuple[Any, ...]] = []
        self._waiting: list[Callable[[KafkaError | None, Message], None] | None] = []

    def produce(self, *row: Any) -> None:
        if len(self._waiting) >= self.room:
            raise BufferError("full")
        self.rows.append(row)
        self._waiting.append(row[4])

    def flush(self, _seconds: float) -> int:
        if self.is_silent:
            return len(self._waiting)
        waiting, self._waiting = self._waiting, []
        for number, delivered in enumerate(waiting):
            if delivered is None:
                continue
            error = None if self.error is None or number < self.first else KafkaError(self.error)
            delivered(error, cast("Message", _Acknowledged(100 + number)))
        return 0


def _send(producer: SlowProducer, values: list[ToDelete]) -> tuple[Tombstone, ...]:
    return send(CONFIG, "c", [Deletion(each, each.key) for each in values], 50, lambda _: cast("Producer", producer))


def _value(partition: int, timestamp_ms: int = 1, **headers: bytes) -> ToDelete:
    return ToDelete(
        number=partition,
        key=b"k%d" % partition,
        topic="t",
        partition=partition,
        offset=7,
        timestamp_ms=timestamp_ms,
        headers=tuple(headers.items()),
    )


def test_each_value_gets_a_tombstone_in_its_partition() -> None:
    """With its key, without a value, no earlier than any of that key; also if the queue has room for one only."""
    producer = SlowProducer(room=1)
    sent = _send(producer, [_value(1, 80), _value(0)])
    assert [row[:4] for row in producer.rows] == [("t", None, b"k1", 1), ("t", None, b"k0", 0)]
    assert [(each.key, each.partition, each.offset, each.timestamp_ms, each.sent) for each in sent] == [
        (0, 0, 100, 50, True),
        (1, 1, 100, 80, True),
    ]


def test_a_delete_event_is_followed_by_a_tombstone() -> None:
    """With the key and headers of the source; the receipt has the offset of the event, which deletes the value."""
    producer = SlowProducer()
    event = Deletion(_value(0), b"source's", b"deleted", (("v", b"2"),), is_followed=True)
    (sent,) = send(CONFIG, "c", [event], 50, lambda _: cast("Producer", producer))
    assert [(row[1], row[2], row[7]) for row in producer.rows] == [
        (b"deleted", b"source's", [("v", b"2")]),
        (None, b"source's", []),
    ]
    assert sent.offset == 100


def test_a_tombstone_after_a_delete_event_that_is_refused_is_told() -> None:
    """Without it the brokers' cleaner keeps the key's last value in the source for good."""
    producer = SlowProducer(KafkaError.TOPIC_AUTHORIZATION_FAILED, first=1)
    event = Deletion(_value(0), b"source's", b"deleted", is_followed=True)
    with pytest.raises(NotAllowedError, match="No tombstone can be sent to t-0"):
        send(CONFIG, "c", [event], 50, lambda _: cast("Producer", producer))


def test_a_missing_right_is_named() -> None:
    """Which one, and on which topic."""
    producer = SlowProducer(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(NotAllowedError, match="No tombstone can be sent to t-0") as raised:
        _send(producer, [_value(0)])
    assert "Write on topic t" in raised.value.action


def test_brokers_that_do_not_answer_are_an_outage() -> None:
    """How many were acknowledged, and that sending again harms nothing."""
    with pytest.raises(UnreachableError, match="of 1 tombstones broker:9092 acknowledged 0"):
        _send(SlowProducer(is_silent=True), [_value(0)])


def test_a_queue_that_stays_full_is_an_outage() -> None:
    """The brokers took nothing in the time they have: the error says how many are acknowledged, and what to do."""
    with pytest.raises(UnreachableError, match="of 2 tombstones broker:9092 acknowledged 0") as raised:
        _send(SlowProducer(is_silent=True, room=1), [_value(0), _value(1)])
    assert "Run the command again" in raised.value.action


def test_nothing_to_delete_asks_no_broker() -> None:
    """No producer is made."""
    assert send(CONFIG, "c", [], 50, lambda _: pytest.fail("it was made")) == ()
