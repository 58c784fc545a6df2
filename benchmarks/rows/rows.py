"""What is compared with what, and what it must come to: every figure is a ratio of two programs of one run."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from benchmarks.peers.peers import KafkaStreams, Keyfold, Peer, Reading
from benchmarks.peers.quix import QuixStreams

KEYFOLD: Final = Keyfold()
STEADY: Final = Keyfold(connector={"max.offsets.per.trigger": "1000000", "bootstrap.fold.enable": "false"})
"""A backlog in micro-batches as they come in a steady state: each is ingested, folded by itself and published."""
STREAMS: Final = KafkaStreams()
READING: Final = Reading()
QUIX: Final = QuixStreams()


class Row(Struct, frozen=True):
    """`what`: records per second of `ours` over those of `other` on data set `data`; at least `must`.

    A program's start, that of its run on a topic of one record, is taken off.
    """

    id: str
    what: str
    data: str
    ours: Peer
    other: Peer
    must: float
    aim: float


ROWS: Final = {
    row.id: row
    for row in (
        Row("backlog", "backlog → output topic, exactly once, against Kafka Streams", "small", KEYFOLD, STREAMS, 6, 12),
        Row("reading", "the same against reading only", "small", KEYFOLD, READING, 0.3, 0.7),
        Row("steady", "micro-batches of ≤ 1 M records, against Kafka Streams", "small", STEADY, STREAMS, 4, 8),
        Row("backlog-1KiB", "values of 1 KiB, against Kafka Streams", "1KiB", KEYFOLD, STREAMS, 6, 12),
        Row("backlog-unique", "each key once, against Kafka Streams", "unique", KEYFOLD, STREAMS, 6, 12),
        Row("backlog-zipf", "Zipf keys, against Kafka Streams", "zipf", KEYFOLD, STREAMS, 6, 12),
        Row("tombstones", "90 % tombstones, against reading only", "tombstones", KEYFOLD, READING, 0.3, 0.7),
        Row("backlog-1", "1 partition, against Kafka Streams", "1-partition", KEYFOLD, STREAMS, 6, 12),
        Row("backlog-64", "64 partitions, against Kafka Streams", "64-partitions", KEYFOLD, STREAMS, 6, 12),
        Row("backlog-quix", "500,000 records, against Quix Streams", "500k", KEYFOLD, QUIX, 1, 1),
    )
}
