"""Reads the last few records of topics, to see what they hold: for `keyfold validate --broker`, within some seconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import OffsetSpec
from msgspec import Struct

from compactor.model.record import TopicPartition
from connectors.clock import SYSTEM_CLOCK
from connectors.kafka.admin import Admin
from connectors.kafka.client_log import logged
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.consumers import Headers, headers_of

MOST_TOPICS: Final = 20
"""Topics that are looked into. A pattern may match thousands, which are alike as a rule; each takes a request."""
_PARTITIONS: Final = 8
"""Partitions of a topic that are asked for their ends: the longest of these is read."""
_OFFSETS: Final = 20
"""Offsets from the end on that are read: some may be markers of transactions, and records that were aborted."""
_KEPT: Final = 5
"""Records of a topic that are kept, the newest: a tombstone among them says little."""
_FETCH_BYTES: Final = 1 << 20
"""Bytes of one partition that are fetched at once. A broker sends the first batch in any case, however large it is."""
_READ_MS: Final = 5_000
"""Longest time for all of it. `keyfold validate` waits as long for brokers that do not answer."""
_POLL_S: Final = 0.2


class Sample(Struct, frozen=True):
    """A record of a topic, as it is written."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def sampled(clients: ClientSettings, admin: Admin, topics: Sequence[str]) -> dict[str, list[Sample]]:
    """Returns the newest records of the first MOST_TOPICS of `topics`, the newest last; none of an empty topic.

    What a broker does not answer is missing. It takes up to _READ_MS, and what `admin` takes for the ends. Raises
    UnreachableError, NotAllowedError.
    """
    samples: dict[str, list[Sample]] = {}
    assigned = list(_assigned(admin, topics[:MOST_TOPICS]))
    if not assigned:
        return samples
    limits = {"enable.partition.eof": True, "max.partition.fetch.bytes": _FETCH_BYTES}
    with closing(Consumer(logged({**clients.consumer(), **limits}))) as consumer:
        consumer.assign(assigned)
        for message in _until_ends(consumer, len(assigned)):
            topic = message.topic() or ""
            sample = Sample(message.key(), message.value(), headers_of(message)[0])
            samples[topic] = [*samples.get(topic, ())[1 - _KEPT :], sample]
    return samples


def _assigned(admin: Admin, topics: Iterable[str]) -> Iterator[Partition]:
    """Yields the longest partition of each topic, from some offsets before its end on."""
    counts = {topic: min(info.partitions, _PARTITIONS) for topic, info in admin.describe(topics).items()}
    partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    starts, ends = (_known(admin, partitions, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
    lengths = {tp: ends[tp] - starts[tp] for tp in partitions if tp in starts and tp in ends}
    for topic in counts:
        longest = max((tp for tp in lengths if tp.topic == topic), key=lambda tp: lengths[tp], default=None)
        if longest is not None and lengths[longest] > 0:
            yield Partition(*longest, max(starts[longest], ends[longest] - _OFFSETS))


def _known(admin: Admin, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
    answers = admin.offsets_each(partitions, spec)
    return {tp: offset for tp, offset in answers.items() if isinstance(offset, int) and offset >= 0}


def _until_ends(consumer: Consumer, partitions: int) -> Iterator[Message]:
    """Yields records until each partition has come to its end or cannot be read, or the time is over."""
    until_ms, open_ = SYSTEM_CLOCK.monotonic_ms() + _READ_MS, partitions
    while open_ > 0 and SYSTEM_CLOCK.monotonic_ms() < until_ms:
        for message in consumer.consume(partitions * _OFFSETS, timeout=_POLL_S):
            error = message.error()
            if error is None:
                yield message
            elif message.topic() is not None:  # its end, or that it may not be read
                open_ -= 1
