"""The last record of ours in an output partition: how far a lost position had come."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as Partition

from compactor.model.position import Tail, Unknown
from compactor.model.record import TopicPartition
from connectors.errors import CHECK_BROKERS, UnreachableError
from connectors.kafka import headers
from connectors.kafka.consumers import Setting
from connectors.kafka.errors import SETTLING, cause, typed
from connectors.sinks.encode import OFFSET, PARTITION, TOPIC

FIRST_STEP: Final = 256
GROWTH: Final = 8
DEADLINE_S: Final = 60.0
SETTLED_S: Final = 20.0
PAUSE_S: Final = 0.1
_PINNED: Final[dict[str, Setting]] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
}


def last_source_offset(config: Mapping[str, Setting], output: str, tp: TopicPartition) -> Tail:
    """`keyfold.source.offset` of the last record of `tp` that a read_committed reader finds in `output`.

    Goes back from the end in growing steps, as markers, compacted offsets and records of other writers may
    stand there; None where there is no record at all, Unknown where none has our headers. Raises UnreachableError.
    """
    reader = Reader(config, Partition(output, tp.partition))
    try:
        low, end = reader.bounds()
        return _search(reader, tp, low, end)
    except KafkaException as error:
        doing = f"The end of output partition {output}-{tp.partition} cannot be read"
        raise typed(cause(error), doing, str(config.get("bootstrap.servers")), f"Read on topic {output}") from error


def holds_records(config: Mapping[str, Setting], output: str, partition: int) -> bool:
    """Whether a read_committed reader finds any record in an output partition. Raises as `last_source_offset`."""
    reader = Reader(config, Partition(output, partition))
    try:
        low, end = reader.bounds()
        return any(True for _ in reader.read(low, end))
    except KafkaException as error:
        doing = f"Output partition {output}-{partition} cannot be read"
        raise typed(cause(error), doing, str(config.get("bootstrap.servers")), f"Read on topic {output}") from error


def _search(reader: Reader, tp: TopicPartition, low: int, end: int) -> Tail:
    step, stop = FIRST_STEP, end
    seen = False
    while stop > low:
        start = max(low, end - step)
        offsets = [offset_of(message, tp) for message in reader.read(start, stop)]
        found = max((offset for offset in offsets if offset is not None), default=None)
        if found is not None:
            return found
        seen = seen or bool(offsets)
        step, stop = step * GROWTH, start
    return Unknown.UNKNOWN if seen else None


class Reader:
    """Reads ranges of one partition, each with a consumer of its own.

    A consumer that is assigned anew may still take up messages of its old assignment: they are dropped, but
    its position jumps to theirs, and a range would seem to be read.
    """

    def __init__(self, config: Mapping[str, Setting], target: Partition) -> None:
        self._config = {"group.id": "keyfold-tail", "log_level": 2, **config, **_PINNED}
        self._target = target

    def bounds(self) -> tuple[int, int]:
        """The first offset and the last stable offset; asked again while the leader of a new topic does not know it."""
        until = time.monotonic() + SETTLED_S
        with closing(Consumer(self._config)) as consumer:
            while True:
                try:
                    low, end = consumer.get_watermark_offsets(self._target, DEADLINE_S)
                except KafkaException as error:
                    if cause(error).code() not in SETTLING or time.monotonic() >= until:
                        raise
                    time.sleep(PAUSE_S)
                else:
                    return int(low), int(end)

    def read(self, start: int, stop: int) -> Iterator[Message]:
        """The committed records of [start, stop); finished by position, which passes markers."""
        if start >= stop:  # a consumer has no position before something was delivered, nor where nothing ever is
            return
        until, reached = time.monotonic() + DEADLINE_S, start
        with closing(Consumer(self._config)) as consumer:
            consumer.assign([Partition(self._target.topic, self._target.partition, start)])
            while (position := consumer.position([self._target])[0].offset) < stop:
                if position > reached:  # a large output may take its time, a silent broker may not
                    until, reached = time.monotonic() + DEADLINE_S, position
                yield from (message for message in _consumed(consumer) if (message.offset() or 0) < stop)
                if time.monotonic() >= until:
                    raise UnreachableError(
                        f"The end of output partition {self._target.topic}-{self._target.partition} was not read on "
                        f"for {DEADLINE_S:.0f} s.",
                        CHECK_BROKERS,
                    )


def _consumed(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(10_000, 0.05)
    for message in messages:
        error = message.error()
        if error is not None:
            raise KafkaException(error)
    return messages


def offset_of(message: Message, tp: TopicPartition) -> int | None:
    """The offset in `tp` that a message's headers name, as `source_offset`."""
    return source_offset(header_pairs(message), tp)


def header_pairs(message: Message) -> Sequence[tuple[str, object]]:
    """A message's headers, to be asked once; none where a name is not UTF-8, as none of keyfold's is."""
    return headers.of(message)[0]


def source_offset(pairs: Iterable[tuple[str, object]], tp: TopicPartition) -> int | None:
    """The offset in `tp` that a record's headers name; None where they are not ours for `tp`.

    Ours are the last of their names: keyfold takes an upstream keyfold's out, but others may write here too.
    """
    found = {name: value for name, value in pairs if isinstance(value, bytes)}
    if (found.get(TOPIC), found.get(PARTITION)) != (tp.topic.encode(), str(tp.partition).encode()):
        return None
    text = found.get(OFFSET, b"")
    return int(text) if text.isdigit() else None
