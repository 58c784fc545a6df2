"""Reads dead letters back: what record each was of, and why it was let go, by its `__connect.errors.*` headers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message
from confluent_kafka import TopicPartition as Partition
from msgspec import Struct

from compactor.digits import whole
from connectors.kafka.client_settings import Setting
from connectors.kafka.errors import reading
from connectors.sinks.dead_letter import PREFIX
from connectors.sinks.encode import TIMESTAMP, Header, Row, sendable
from connectors.sinks.output_reader import DEADLINE_S, OutputPartitionReader, header_pairs

REDRIVES: Final = "keyfold.redrives"
"""A header that counts how often a record was sent back to its source."""
_FIRST: Final = f"{PREFIX}topic"
"""With it begin the headers that say what was wrong."""
# Offsets that are read with one consumer; their letters are yielded before the next step begins.
_STEP: Final = 10_000


class Letter(Struct, frozen=True):
    """A dead letter at `offset` of `partition`, with the record's own key, value, headers and timestamp (ms).

    `appended`: when the letter came (ms), None if its topic keeps the records' times. If `dated` is False, the
    letter does not say the record's time, and `timestamp` is `appended`.
    `context` has what the letter says of its error, by the header's name without `__connect.errors.`; empty without
    errors.deadletterqueue.context.headers.enable, as any such header is then the record's own.
    """

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    context: dict[str, str]
    appended: int | None = None
    dated: bool = True

    @property
    def record_ms(self) -> int | None:
        """The record's time (ms), None if it is not known."""
        return self.timestamp if self.dated else None

    @property
    def redrives(self) -> int:
        """How often the record was sent back."""
        counts = [value for name, value in self.headers if name == REDRIVES and isinstance(value, bytes)]
        return whole(counts[-1]) or 0 if counts else 0

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        headers = sum(len(name) + len(value or "") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers

    def source_row(self) -> Row:
        """Returns the record as it goes to its source again: as it was, and one more on the count of redrives."""
        own = [header for header in self.headers if header[0] != REDRIVES]
        counted: list[Header] = [*own, (REDRIVES, b"%d" % (self.redrives + 1))]
        return sendable((self.value, self.key, self.timestamp, counted))


class LetterFilter(Struct, frozen=True, omit_defaults=True):
    """Which letters a command is about, by what they say of their source topic, stage and class; None: any."""

    topic: str | None = None
    stage: str | None = None
    class_name: str | None = None

    def matches(self, letter: Letter) -> bool:
        """Returns whether a letter is among them; one that does not say what is asked for is not."""
        said = letter.context
        pairs = ((self.topic, "topic"), (self.stage, "stage"), (self.class_name, "class.name"))
        return all(asked is None or asked == said.get(name) for asked, name in pairs)

    def includes(self, other: LetterFilter) -> bool:
        """Returns whether all letters that match `other` match this one."""
        pairs = ((self.topic, other.topic), (self.stage, other.stage), (self.class_name, other.class_name))
        return all(mine is None or mine == theirs for mine, theirs in pairs)


def read_letters(
    config: Mapping[str, Setting],
    topic: str,
    partition: int,
    start: int,
    end: int,
    read: Callable[..., OutputPartitionReader] = OutputPartitionReader,
    *,
    context_headers: bool,
    left_s: Callable[[], float] = lambda: DEADLINE_S,
) -> Iterator[Letter]:
    """Yields the letters of [start, end) of a partition by offset; `config` is a consumer's.

    `context_headers`: whether the connector adds headers that say what was wrong. If it does not, who produces to the
    source may have written headers of these names, so none is believed. `read` makes what reads the partition;
    `left_s` tells how long (s) may be waited, and may raise what ends it. Raises UnreachableError, NotAllowedError.
    """
    reader = read(config, Partition(topic, partition), left_s=left_s)
    with reading(config, f"The dead letters in {topic}-{partition}", topic):
        for first in range(start, end, _STEP):
            messages = reader.read(first, min(first + _STEP, end))
            yield from (_letter(message, context_headers=context_headers) for message in messages)


def bounds(
    config: Mapping[str, Setting], topic: str, partition: int, *, left_s: Callable[[], float] = lambda: DEADLINE_S
) -> tuple[int, int]:
    """Returns the first offset of a partition and its last stable offset. Raises as `read_letters`."""
    with reading(config, f"The ends of {topic}-{partition}", topic):
        return OutputPartitionReader(config, Partition(topic, partition), left_s=left_s).bounds()


def _letter(message: Message, *, context_headers: bool) -> Letter:
    pairs = [
        (name, value if isinstance(value, bytes | None) else str(value).encode())
        for name, value in header_pairs(message)
    ]
    kind, timestamp = message.timestamp()
    replaced = kind == TIMESTAMP_LOG_APPEND_TIME
    ours = _ours(pairs, replaced=replaced, timestamp=timestamp, context_headers=context_headers)
    said, time = pairs[ours.start : ours.end], None if ours.time is None else _time_ms(pairs[ours.time])
    key, value = message.key(), message.value()
    return Letter(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp=timestamp if time is None else time,
        key=None if key is None else bytes(key),
        value=None if value is None else bytes(value),
        headers=tuple(pair for at, pair in enumerate(pairs[: ours.start]) if at != ours.time),
        context={name.removeprefix(PREFIX): value.decode("utf-8", "replace") for name, value in said if value},
        appended=timestamp if replaced else None,
        dated=time is not None or not replaced,
    )


class _Ours(NamedTuple):
    """The places of a letter's headers that are not the record's own: context in [start, end), and its time."""

    start: int
    end: int
    time: int | None


def _ours(pairs: Sequence[tuple[str, bytes | None]], *, replaced: bool, timestamp: int, context_headers: bool) -> _Ours:
    """Finds what a letter has in addition to the record's own headers, which come first.

    A record may have headers of the same names: that of a dead letter topic that is a source, or of another keyfold.
    Ours are the last ones. Time 0 comes last, and is in the letter as 1 or, if `replaced`, as the topic's.
    """
    names = [name for name, _ in pairs]
    zero = bool(pairs) and pairs[-1] == (TIMESTAMP, b"0") and (replaced or timestamp == 1)
    end = start = len(pairs) - zero
    if context_headers:
        starts = [at for at in range(end) if names[at] == _FIRST]
        start = starts[-1] if starts else next((at for at in range(end) if names[at].startswith(PREFIX)), end)
    if zero:
        return _Ours(start, end, end)
    is_time = 0 < start < end and _time_ms(pairs[start - 1]) is not None
    return _Ours(start, end, start - 1 if is_time else None)


def _time_ms(header: tuple[str, bytes | None]) -> int | None:
    """Returns the record's time that a header says; None if it says none."""
    name, value = header
    return None if name != TIMESTAMP or value is None else whole(value)
