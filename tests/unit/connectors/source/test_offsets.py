"""The position of the source as text: one position has one text."""

from __future__ import annotations

import json

from connectors.source.offsets import TopicOffsets, decode, encode


def topic(name: str, *offsets: int) -> dict[str, TopicOffsets]:
    return {name: TopicOffsets(f"id-{name}", dict(enumerate(offsets)))}


def test_a_position_has_one_text() -> None:
    """Topics are ordered by name and partitions by number, whatever order they were found in."""
    many = {"b": TopicOffsets("ib", {10: 1, 2: 5}), "a": TopicOffsets("ia", {0: 7})}
    assert json.dumps(encode(many)) == (
        '{"a": {"id": "ia", "partitions": {"0": 7}}, "b": {"id": "ib", "partitions": {"2": 5, "10": 1}}}'
    )


def test_a_position_survives_its_text() -> None:
    """Reading a position back and writing it again gives the identical text, as Spark compares texts."""
    text = json.dumps(encode({**topic("b", 3), **topic("a", *range(12))}))
    assert json.dumps(encode(decode(json.loads(text)))) == text
