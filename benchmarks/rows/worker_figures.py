"""What a worker takes by itself: how soon it is ready, what it uses idle, how fresh its output is."""

from __future__ import annotations

import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.harness.datasets import ONE, filled, make
from benchmarks.harness.figure import Figure, percentile
from benchmarks.peers.keyfold_worker import Worker, working
from benchmarks.rows.keys import ENOUGH, FOLD, GROWTH, keys
from benchmarks.rows.partitions import partitions

SETTLE_S: Final = 90.0
"""After its start a worker takes its first fold and its first vacuum, each after a minute."""
WATCH_S: Final = 60.0
RATE: Final = 5_000
"""Records a second whose freshness is measured."""
FRESH_S: Final = 40.0
_STAMP: Final = struct.Struct(">d")
_MIB: Final = 1024 * 1024


def ready(bootstrap: str) -> dict[str, float]:
    """Seconds from a worker's start until its first micro-batch is in its catalog, and until that is published."""
    with tempfile.TemporaryDirectory() as folder, working(bootstrap, filled(bootstrap, ONE), Path(folder)) as worker:
        return {
            "first micro-batch, s": worker.running.until(worker.has_read),
            "published, s": worker.running.until(worker.published()),
        }


def idle(bootstrap: str) -> dict[str, float]:
    """Share of one core and resident memory of a worker's process tree with nothing to read."""
    with tempfile.TemporaryDirectory() as folder, working(bootstrap, filled(bootstrap, ONE), Path(folder)) as worker:
        worker.running.until(worker.published())
        time.sleep(SETTLE_S)
        before, began = worker.running.meter.cpu_seconds, time.monotonic()
        time.sleep(WATCH_S)
        used = worker.running.meter.cpu_seconds - before
        return {"% of a core": 100 * used / (time.monotonic() - began), "MiB": worker.running.meter.rss / _MIB}


def fresh(bootstrap: str) -> dict[str, float]:
    """Seconds from produced to visible for a read_committed reader, at RATE records a second over 10,000 keys."""
    topic = f"fresh-{uuid4().hex[:6]}"
    make(bootstrap, topic, 2)
    over = threading.Event()
    sending = threading.Thread(target=_send, args=(bootstrap, topic, over))
    with tempfile.TemporaryDirectory() as folder, working(bootstrap, topic, Path(folder)) as worker:
        sending.start()
        try:
            worker.running.until(worker.published())
            time.sleep(SETTLE_S / 3)
            late = _lateness(bootstrap, worker, FRESH_S)
        finally:
            over.set()
            sending.join()
    return {"p50, s": statistics.median(late), "p99, s": percentile(late, 0.99)}


FIGURES: Final[Mapping[str, Figure]] = {
    one.id: one
    for one in (
        Figure("ready", "worker ready", {"first micro-batch, s": (12, 6)}, ready),
        Figure("idle", "idle worker, nothing to read", {"% of a core": (5, 2), "MiB": (1229, 819)}, idle),
        Figure("fresh", f"freshness at {RATE:,} records/s", {"p50, s": (0.8, 0.3), "p99, s": (1.5, 0.6)}, fresh),
        Figure(
            "keys",
            "distinct keys with a heap of 2 GiB",
            {},
            keys,
            at_least={ENOUGH: (50, 200), FOLD: (250_000, 500_000)},
        ),
        Figure("growth", "time per record", {GROWTH: (1.3, 1.1)}, keys, same_as="keys"),
        Figure("partitions", "a record to each of 1,000 partitions", {"until published, s": (3, 1)}, partitions),
    )
}


def _send(bootstrap: str, topic: str, over: threading.Event) -> None:
    """Records whose value begins with the time at which they were produced; a hundredth of a second's at a time."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    number, began = 0, time.monotonic()
    while not over.wait(0.01):
        while number < (time.monotonic() - began) * RATE:
            key = b"%d" % (number * 7919 % 10_000)
            producer.produce(topic, _STAMP.pack(time.time()) + bytes(92), key, number % 2)
            number += 1
        producer.poll(0)
    producer.flush(30)


def _lateness(bootstrap: str, worker: Worker, seconds: float) -> list[float]:
    """How late each record comes that a reader at the end of the output sees within `seconds`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "fresh", "fetch.wait.max.ms": 10})
    ends = [consumer.get_watermark_offsets(TopicPartition(worker.output, one), 30)[1] for one in (0, 1)]
    consumer.assign([TopicPartition(worker.output, number, end) for number, end in enumerate(ends)])
    late: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for message in consumer.consume(10_000, 0.01):
            value = message.value()
            if value:
                late.append(time.time() - _STAMP.unpack(value[:8])[0])
    consumer.close()
    return late
