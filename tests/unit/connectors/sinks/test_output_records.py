"""What is read back of an output, of messages as a reader gets them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Partition

from compactor.errors import RebuildError
from connectors.sinks.output_records import Bound, OutputRecords

RETIRES = ("keyfold.synthetic", b"identity")


class Message:
    """A record of the output at `place`, of the source offset `source` in `partition`."""

    def __init__(
        self,
        place: int,
        key: bytes,
        value: bytes | None,
        source: int | None,
        *more: tuple[str, bytes],
        partition: int = 0,
    ) -> None:
        self.place, self.own_key, self.own_value = place, key, value
        named = [] if source is None else [("keyfold.source.offset", b"%d" % source)]
        self.named = [("keyfold.source.topic", b"t"), ("keyfold.source.partition", b"%d" % partition), *named, *more]

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


class Reader:
    """The output partition with `messages`."""

    target = Partition("out", 0)

    def __init__(self, messages: Iterable[Message]) -> None:
        self.messages = messages

    def bounds(self) -> tuple[int, int]:
        return 0, 100

    def read(self, start: int, end: int) -> Iterable[Any]:
        return (each for each in self.messages if start <= each.place < end)


def records_of(
    messages: Iterable[Message], bounds: Mapping[int, Bound] = {0: Bound(1, 50)}, spread: int | None = None
) -> OutputRecords:
    opened: Any = lambda *_: Reader(messages)  # noqa: E731
    return OutputRecords({}, "out", "t", bounds, spread, opened=opened)


def rows_of(messages: Iterable[Message]) -> list[dict[str, Any]]:
    records = records_of(messages)
    return [row for batch in records.rows(0, records.last(0, 100).offsets) for row in batch.to_pylist()]


def read_back(messages: Iterable[Message]) -> list[tuple[int, bytes, bytes | None]]:
    return [(row["offset"], row["key"], row["value"]) for row in rows_of(messages)]


def test_a_key_that_was_retired_is_gone() -> None:
    """A reader of the output has it as deleted, so the rebuilt log has not got it."""
    messages = [Message(0, b"A", b"1", 0), Message(2, b"A", None, None, RETIRES), Message(3, b"a", b"2", 1)]
    assert read_back(messages) == [(1, b"a", b"2")]


def test_a_retired_key_that_came_again_is_there() -> None:
    """Its later record counts."""
    messages = [
        Message(0, b"A", b"1", 0),
        Message(2, b"A", None, None, RETIRES),
        Message(3, b"a", b"2", 1),
        Message(5, b"a", None, None, RETIRES),
        Message(6, b"A", b"3", 2),
    ]
    assert read_back(messages) == [(2, b"A", b"3")]


def test_what_a_record_was_ordered_by_is_known_again() -> None:
    """Its value may no longer have the field; the header is not one of the source's."""
    messages = [Message(0, b"a", None, 0, ("keyfold.order", b"n2500001")), Message(1, b"b", b"1", 1)]
    rows = rows_of(messages)
    assert [(row["order_value"], row["headers"]) for row in rows] == [(b"n2500001", None), (None, None)]


def generation(number: int) -> tuple[str, bytes]:
    return "keyfold.generation", b"%d" % number


@pytest.mark.parametrize(
    ("messages", "offsets", "earlier"),
    [
        pytest.param([Message(0, b"a", b"1", 0)], [], [0], id="not superseded yet"),
        pytest.param([Message(0, b"a", b"1", 0), Message(1, b"a", None, 1)], [], [], id="deleted in its own"),
        pytest.param([Message(0, b"a", b"1", 0), Message(1, b"a", b"2", 0, generation(2))], [1], [], id="superseded"),
        pytest.param(
            [Message(0, b"a", b"1", 0), Message(1, b"a", None, None, generation(2), ("keyfold.synthetic", b"reset"))],
            [],
            [],
            id="deleted by the generation's tombstone",
        ),
        pytest.param(
            [Message(0, b"A", b"1", 0), Message(1, b"a", b"2", 0, generation(2))],
            [1],
            [0],
            id="the record that retires it is not sent",
        ),
        pytest.param(
            [Message(0, b"a", b"1", 0, generation(2)), Message(1, b"a", b"2", 0, partition=1)],
            [0],
            [1],
            id="another partition's, of the scope before",
        ),
    ],
)
def test_keys_that_live_by_an_earlier_generation_are_told(
    messages: list[Message], offsets: list[int], earlier: list[int]
) -> None:
    """Of a first fold that was sent in part nothing else says what of the generation before is still to go."""
    last = records_of(messages, {0: Bound(2, 50), 1: Bound(2, 50)}).last(0, 100)
    assert (last.offsets.tolist(), last.earlier.tolist()) == (offsets, earlier)


def test_records_of_an_earlier_generation_have_the_same_place_below_0_in_every_rebuild() -> None:
    """Their source offsets count in that generation; a table that has the row knows it again by its place."""
    messages = [
        Message(3, b"a", b"1", 7, ("keyfold.order", b"n2500001")),
        Message(4, b"b", b"1", 0, generation(2)),
        Message(6, b"c", b"2", 5, partition=1),
    ]
    records = records_of(messages, {0: Bound(2, 50), 1: Bound(2, 50)})
    (batch,) = records.earlier_rows(0, records.last(0, 100).earlier)
    rows = [tuple(row[name] for name in ("partition", "offset", "key", "order_value")) for row in batch.to_pylist()]
    assert rows == [(0, -4, b"a", None), (0, -7, b"c", None)]


def test_another_scope_is_refused() -> None:
    """Its records are not in the output partitions in which this one looks for them, and would be left out."""
    bounds = {0: Bound(1, 50), 1: Bound(1, 50)}
    foreign = [Message(0, b"a", b"1", 0), Message(1, b"b", b"1", 0, partition=1)]
    with pytest.raises(RebuildError, match=r"has records of partition 1 of its source: .*compaction\.scope=partition"):
        records_of(foreign, bounds).last(0, 100)
    by_key = [Message(0, b"order-7", b"1", 0), Message(1, b"order-8", b"1", 1)]
    with pytest.raises(RebuildError, match=r"has keys that go to another one: .*compaction\.scope=topic"):
        records_of(by_key, bounds, spread=2).last(0, 100)


def test_what_the_output_has_lost_meanwhile_is_passed() -> None:
    """Its own cleaner may take a tombstone between the two readings."""
    messages = [Message(place, b"%d" % place, None, place) for place in range(4)]
    records = records_of(messages)
    offsets = records.last(0, 100).offsets
    del messages[1:3]
    assert [row["offset"] for batch in records.rows(0, offsets) for row in batch.to_pylist()] == [0, 3]
