"""How long a micro-batch takes that touches all partitions of a topic with a thousand."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import Producer

from benchmarks.harness.datasets import make, scale
from benchmarks.peers.committed import covers
from benchmarks.peers.keyfold_worker import working

PARTITIONS: Final = 1_000
_WARM: Final = 3
"""So many micro-batches come first: Spark plans, and Java compiles, what all later ones use."""
_REPEATS: Final = 7
_POLL_S: Final = 0.02


def partitions(bootstrap: str) -> dict[str, float]:
    """Seconds from the last acknowledgement of a record to each partition until the group's positions cover all."""
    topic, count = f"partitions-{uuid4().hex[:6]}", max(1, round(PARTITIONS * min(1.0, scale())))
    make(bootstrap, topic, count)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    took: list[float] = []
    with tempfile.TemporaryDirectory() as folder, working(bootstrap, topic, Path(folder)) as worker:
        for number in range(1, _WARM + _REPEATS + 1):
            began = _send(producer, topic, count, b"%d" % number)
            done = covers(bootstrap, worker.group, topic, dict.fromkeys(range(count), number), _POLL_S)
            worker.running.until(done)
            took.append(time.monotonic() - began)
    found = took[_WARM:]
    return {
        "until published, s": statistics.median(found),
        "the slowest, s": max(found),
        "the first, with the start, s": took[0],
    }


def _send(producer: Producer, topic: str, count: int, value: bytes) -> float:
    """When the last of the records was acknowledged. Raises RuntimeError where one was not."""
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
