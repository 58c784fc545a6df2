"""Freshness of Kafka Streams with commits each 100 ms beside ours, under the same load on the same broker."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from benchmarks.harness.datasets import filled_topic
from benchmarks.harness.row import Measurement
from benchmarks.harness.steady import Load
from benchmarks.harness.watch import Subject, watch
from benchmarks.peers.kafka_streams import KafkaStreams
from benchmarks.rows.worker import FIRST, FRESH_S, KEYS, PARTITIONS, RATE, SETTLE_S, fresh

_RATIO: Final = "times the p50 of keyfold"


def fresh_streams(bootstrap: str) -> dict[str, float]:
    """Measures keyfold, then Kafka Streams, at RATE records/s; each has its own topic, and runs alone."""
    ours, theirs = fresh(bootstrap), _streams(bootstrap)
    return {
        _RATIO: theirs["p50, s"] / ours["p50, s"],
        **{f"Kafka Streams, {name}": value for name, value in theirs.items()},
        **{f"keyfold, {name}": value for name, value in ours.items()},
    }


def _streams(bootstrap: str) -> dict[str, float]:
    topic = filled_topic(bootstrap, FIRST)
    load = Load(topics=(topic,), partitions=PARTITIONS, rate=RATE, keys=KEYS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with KafkaStreams(commit_ms=100).running(bootstrap, topic, folder) as job:
            job.running.until(job.published())
            subject = Subject(job.running, bootstrap, (job.output,), job.published)
            return watch(subject, load, folder / "signals", SETTLE_S / 3, FRESH_S).values()


FRESH_STREAMS: Final = Measurement(
    "fresh-streams", f"freshness of Kafka Streams, commits each 0.1 s, at {RATE:,} records/s", {}, fresh_streams
)
