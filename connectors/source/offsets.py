"""The position of the source in all its topics, and its JSON.

`{"<topic>": {"id": "<topic id>", "partitions": {"0": 57}}}`: offsets are the next to read. Spark compares
two positions as text, so the order is fixed: topics by name, partitions by number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class TopicOffsets(msgspec.Struct, frozen=True):
    """The next offset to read of each partition of one topic, and the id of the topic that they count in."""

    id: str
    partitions: dict[int, int]


Offsets = Mapping[str, TopicOffsets]


def decode(document: Mapping[str, Any]) -> dict[str, TopicOffsets]:
    """Reads the offsets of a parsed JSON document; raises msgspec.ValidationError where it is not one."""
    return msgspec.convert(dict(document), dict[str, TopicOffsets], str_keys=True)


def encode(offsets: Offsets) -> dict[str, Any]:
    """Makes the JSON document of `offsets`, in its fixed order."""
    return {name: _encode_topic(offsets[name]) for name in sorted(offsets)}


def _encode_topic(topic: TopicOffsets) -> dict[str, Any]:
    partitions = {str(number): offset for number, offset in sorted(topic.partitions.items())}
    return {"id": topic.id, "partitions": partitions}
