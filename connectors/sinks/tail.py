"""The last record of ours in an output partition: how far a lost position had come."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as Partition

from compactor.record import TopicPartition
from connectors.errors import UnreachableError
from connectors.kafka.consumers import Setting
from connectors.kafka.failures import cause, typed
from connectors.sinks.encode import OFFSET, PARTITION, TOPIC

FIRST_STEP: Final = 256
GROWTH: Final = 8
DEADLINE_S: Final = 60.0
_PINNED: Final[dict[str, Setting]] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
}


def last_source_offset(config: Mapping[str, Setting], output: str, tp: TopicPartition) -> int | None:
    """`keyfold.source.offset` of the last record of `tp` that a read_committed reader finds in `output`.

    Goes back from the end in growing steps, as markers, compacted offsets and records of other writers may
    stand there; None where no record has our headers. Raises UnreachableError, OutputError.
    """
    target = Partition(output, tp.partition)
    consumer = Consumer({"group.id": "keyfold-tail", "log_level": 2, **config, **_PINNED})
    try:
        low, end = consumer.get_watermark_offsets(target, DEADLINE_S)
        return _search(consumer, target, tp, low, end)
    except KafkaException as error:
        doing = f"The end of output partition {output}-{tp.partition} cannot be read"
        raise typed(cause(error), doing, str(config.get("bootstrap.servers"))) from error
    finally:
        consumer.close()


def _search(consumer: Consumer, target: Partition, tp: TopicPartition, low: int, end: int) -> int | None:
    step, stop = FIRST_STEP, end
    while stop > low:
        start = max(low, end - step)
        found = _last_of_ours(_read(consumer, target, start, stop), tp)
        if found is not None:
            return found
        step, stop = step * GROWTH, start
    return None


def _read(consumer: Consumer, target: Partition, start: int, stop: int) -> Iterable[Message]:
    """The committed records of [start, stop); finished by position, which passes markers."""
    consumer.assign([Partition(target.topic, target.partition, start)])
    until = time.monotonic() + DEADLINE_S
    while consumer.position([target])[0].offset < stop:
        for message in consumer.consume(10_000, 0.05):
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            if (message.offset() or 0) < stop:
                yield message
        if time.monotonic() >= until:
            raise UnreachableError(
                f"The end of output partition {target.topic}-{target.partition} was not read in {DEADLINE_S:.0f} s.",
                "Check that the brokers of bootstrap.servers are up and can be reached.",
            )


def _last_of_ours(messages: Iterable[Message], tp: TopicPartition) -> int | None:
    offsets = (source_offset(list(message.headers() or ()), tp) for message in messages)
    return max((offset for offset in offsets if offset is not None), default=None)


def source_offset(headers: Iterable[tuple[str, object]], tp: TopicPartition) -> int | None:
    """The offset in `tp` that a record's headers name; None where they are not ours for `tp`.

    Ours are the last of their names: keyfold takes an upstream keyfold's out, but others may write here too.
    """
    found = {name: value for name, value in headers if isinstance(value, bytes)}
    if (found.get(TOPIC), found.get(PARTITION)) != (tp.topic.encode(), str(tp.partition).encode()):
        return None
    text = found.get(OFFSET, b"")
    return int(text) if text.isdigit() else None
