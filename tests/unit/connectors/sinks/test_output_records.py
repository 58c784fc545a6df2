"""What is read back of an output, of messages as a reader gets them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Partition

from compactor.model.record import TopicPartition
from connectors.sinks import output_records

T0 = TopicPartition("t", 0)
RETIRES = ("keyfold.synthetic", b"identity")


class Message:
    """A record of the output at `place`, of the source offset `source`."""

    def __init__(
        self, place: int, key: bytes, value: bytes | None, source: int | None, *more: tuple[str, bytes]
    ) -> None:
        self.place, self.own_key, self.own_value = place, key, value
        named = [] if source is None else [("keyfold.source.offset", b"%d" % source)]
        self.named = [("keyfold.source.topic", b"t"), ("keyfold.source.partition", b"0"), *named, *more]

    def offset(self) -> int:
        return self.place

    def key(self) -> bytes:
        return self.own_key

    def value(self) -> bytes | None:
        return self.own_value

    def headers(self) -> list[tuple[str, bytes]]:
        return self.named

    def timestamp(self) -> tuple[int, int]:
        return 1, 1


def rows_of(monkeypatch: pytest.MonkeyPatch, messages: Iterable[Message]) -> list[dict[str, Any]]:
    class Reader:
        target = Partition("out", 0)

        def __init__(self, *_: object) -> None: ...
        def bounds(self) -> tuple[int, int]:
            return 0, 100

        def read(self, start: int, end: int) -> Iterable[Any]:
            return (one for one in messages if start <= one.place < end)

    monkeypatch.setattr(output_records, "OutputPartitionReader", Reader)
    return [row for batch in output_records.last_records({}, "out", T0, 1, 100, 50) for row in batch.to_pylist()]


def read_back(monkeypatch: pytest.MonkeyPatch, messages: Iterable[Message]) -> list[tuple[int, bytes, bytes | None]]:
    rows = rows_of(monkeypatch, messages)
    return [(row["offset"], row["key"], row["value"]) for row in rows]


def test_a_key_that_was_retired_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of the output has it as deleted, so the rebuilt log has not got it."""
    messages = [Message(0, b"A", b"1", 0), Message(2, b"A", None, None, RETIRES), Message(3, b"a", b"2", 1)]
    assert read_back(monkeypatch, messages) == [(1, b"a", b"2")]


def test_a_retired_key_that_came_again_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its later record counts."""
    messages = [
        Message(0, b"A", b"1", 0),
        Message(2, b"A", None, None, RETIRES),
        Message(3, b"a", b"2", 1),
        Message(5, b"a", None, None, RETIRES),
        Message(6, b"A", b"3", 2),
    ]
    assert read_back(monkeypatch, messages) == [(2, b"A", b"3")]


def test_what_a_record_was_ordered_by_is_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its value may no longer have the field; the header is not one of the source's."""
    messages = [Message(0, b"a", None, 0, ("keyfold.order", b"n2500001")), Message(1, b"b", b"1", 1)]
    rows = rows_of(monkeypatch, messages)
    assert [(row["order_value"], row["headers"]) for row in rows] == [(b"n2500001", None), (None, None)]
