"""Reads dead letters back: what record each was of, and why it was let go, by its `__connect.errors.*` headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from confluent_kafka import KafkaException, Message
from confluent_kafka import TopicPartition as Partition
from msgspec import Struct

from connectors.kafka.client_settings import Setting
from connectors.kafka.errors import cause, typed
from connectors.sinks.dead_letter import PREFIX
from connectors.sinks.encode import TIMESTAMP, Header
from connectors.sinks.output_reader import OutputPartitionReader, header_pairs

REDRIVES: Final = "keyfold.redrives"
"""A header that counts how often a record was sent back to its source."""
_STEP: Final = 10_000
_DIGITS: Final = 18


class Letter(Struct, frozen=True):
    """A dead letter at `offset` of `partition`, with the record's own key, value, headers and timestamp (ms).

    `context` has what the letter says of its error, by the header's name without `__connect.errors.`; empty without
    errors.deadletterqueue.context.headers.enable.
    """

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    context: dict[str, str]

    @property
    def redrives(self) -> int:
        """How often the record was sent back."""
        found = [value for name, value in self.headers if name == REDRIVES and isinstance(value, bytes)]
        text = found[-1].decode("ascii", "replace") if found else ""
        return int(text) if text.isdecimal() and len(text) <= _DIGITS else 0

    def sent_back(self) -> tuple[Header, ...]:
        """Returns the headers with which the record goes to its source again: its own, and one more on the count."""
        own = tuple(header for header in self.headers if header[0] not in {REDRIVES, TIMESTAMP})
        return (*own, (REDRIVES, b"%d" % (self.redrives + 1)))


def read_letters(config: Mapping[str, Setting], topic: str, partition: int, start: int, end: int) -> Iterator[Letter]:
    """Yields the letters of [start, end) of a partition by offset; `config` is a consumer's.

    Raises UnreachableError, NotAllowedError.
    """
    reader = OutputPartitionReader(config, Partition(topic, partition))
    try:
        for first in range(start, end, _STEP):
            yield from map(_letter, reader.read(first, min(first + _STEP, end)))
    except KafkaException as error:
        doing = f"The dead letters in {topic}-{partition} cannot be read"
        raise typed(cause(error), doing, str(config.get("bootstrap.servers")), f"Read on topic {topic}") from error


def bounds(config: Mapping[str, Setting], topic: str, partition: int) -> tuple[int, int]:
    """Returns the first offset of a partition and its last stable offset. Raises as `read_letters`."""
    try:
        return OutputPartitionReader(config, Partition(topic, partition)).bounds()
    except KafkaException as error:
        doing = f"The ends of {topic}-{partition} cannot be read"
        raise typed(cause(error), doing, str(config.get("bootstrap.servers")), f"Read on topic {topic}") from error


def _letter(message: Message) -> Letter:
    pairs = [
        (name, value if isinstance(value, bytes | None) else str(value).encode())
        for name, value in header_pairs(message)
    ]
    context = {
        name.removeprefix(PREFIX): value.decode("utf-8", "replace")
        for name, value in pairs
        if name.startswith(PREFIX) and value is not None
    }
    times = [value for name, value in pairs if name == TIMESTAMP and value is not None and value.isdigit()]
    key, value = message.key(), message.value()
    return Letter(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp=int(times[-1]) if times else message.timestamp()[1],
        key=None if key is None else bytes(key),
        value=None if value is None else bytes(value),
        headers=tuple(pair for pair in pairs if not pair[0].startswith(PREFIX)),
        context=context,
    )
