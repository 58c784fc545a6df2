"""Seconds until a record to each of a thousand partitions is published."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import Producer

from benchmarks.harness.datasets import scale
from benchmarks.harness.row import Measurement
from benchmarks.harness.topics import committed, create_topic
from benchmarks.peers.keyfold import running_worker

_PARTITIONS: Final = 1_000
_WARM_UP: Final = 3
"""Micro-batches that do not count: in them Spark plans and Java compiles what later ones use."""
_REPEATS: Final = 7
_POLL_S: Final = 0.02


def partitions(bootstrap: str) -> dict[str, float]:
    """Measures seconds from the last acknowledgement until the group's committed positions cover all partitions."""
    topic, count = f"partitions-{uuid4().hex[:6]}", max(1, round(_PARTITIONS * min(1.0, scale())))
    create_topic(bootstrap, topic, count)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    took: list[float] = []
    with tempfile.TemporaryDirectory() as folder, running_worker(bootstrap, topic, Path(folder)) as worker:
        for number in range(1, _WARM_UP + _REPEATS + 1):
            began = _produce(producer, topic, count, b"%d" % number)
            done = committed(bootstrap, worker.group, topic, dict.fromkeys(range(count), number), _POLL_S)
            worker.running.until(done)
            took.append(time.monotonic() - began)
    found = took[_WARM_UP:]
    return {
        "until published, s": statistics.median(found),
        "the slowest, s": max(found),
        "the first, with the start, s": took[0],
    }


def _produce(producer: Producer, topic: str, count: int, value: bytes) -> float:
    """Produces a record to each partition; returns the monotonic time of the last acknowledgement.

    Raises:
        RuntimeError: a record was not acknowledged.
    """
    answers: list[tuple[float, Any]] = []
    for number in range(count):
        producer.produce(
            topic, value, b"key", number, on_delivery=lambda error, _: answers.append((time.monotonic(), error))
        )
    producer.flush(60)
    refused = [error for _, error in answers if error is not None]
    if refused or len(answers) < count:
        raise RuntimeError(
            f"{count - len(answers)} records were not acknowledged, {len(refused)} refused: {refused[:1]}"
        )
    return max(at for at, _ in answers)


PARTITIONS: Final = Measurement(
    "partitions", "a record to each of 1,000 partitions", {"until published, s": (2, 1)}, partitions
)
