"""One worker by itself: seconds until it is ready, what it uses while idle, how fresh its output is."""

from __future__ import annotations

import statistics
import struct
import tempfile
import threading
import time
from pathlib import Path
from typing import Final
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.harness.datasets import ONE, filled_topic
from benchmarks.harness.results import percentile
from benchmarks.harness.row import Measurement
from benchmarks.harness.topics import create_topic
from benchmarks.peers.keyfold import Worker, running_worker

SETTLE_S: Final = 90.0
"""A worker's first full fold and first vacuum come a minute after its start."""
WATCH_S: Final = 60.0
RATE: Final = 5_000
"""Records per second that are produced while freshness is measured."""
FRESH_S: Final = 40.0
_STAMP: Final = struct.Struct(">d")
_MIB: Final = 1024 * 1024


def ready(bootstrap: str) -> dict[str, float]:
    """Measures seconds from a worker's start until its first micro-batch is committed, and until it is published."""
    topic = filled_topic(bootstrap, ONE)
    with tempfile.TemporaryDirectory() as folder, running_worker(bootstrap, topic, Path(folder)) as worker:
        return {
            "first micro-batch, s": worker.running.until(worker.has_ingested),
            "published, s": worker.running.until(worker.published()),
        }


def idle(bootstrap: str) -> dict[str, float]:
    """Measures the share of one core and the resident memory of a worker's process tree with nothing to read."""
    topic = filled_topic(bootstrap, ONE)
    with tempfile.TemporaryDirectory() as folder, running_worker(bootstrap, topic, Path(folder)) as worker:
        worker.running.until(worker.published())
        time.sleep(SETTLE_S)
        before, began = worker.running.meter.cpu_seconds, time.monotonic()
        time.sleep(WATCH_S)
        used = worker.running.meter.cpu_seconds - before
        return {"% of a core": 100 * used / (time.monotonic() - began), "MiB": worker.running.meter.rss / _MIB}


def fresh(bootstrap: str) -> dict[str, float]:
    """Measures seconds from produced to visible for a read_committed reader, at RATE records/s over 10,000 keys."""
    topic = f"fresh-{uuid4().hex[:6]}"
    create_topic(bootstrap, topic, 2)
    stop = threading.Event()
    producing = threading.Thread(target=_produce, args=(bootstrap, topic, stop))
    with tempfile.TemporaryDirectory() as folder, running_worker(bootstrap, topic, Path(folder)) as worker:
        producing.start()
        try:
            worker.running.until(worker.published())
            time.sleep(SETTLE_S / 3)
            latencies = _latencies(bootstrap, worker, FRESH_S)
        finally:
            stop.set()
            producing.join()
    return {"p50, s": statistics.median(latencies), "p99, s": percentile(latencies, 0.99)}


READY: Final = Measurement("ready", "worker ready", {"first micro-batch, s": (12, 6)}, ready)
IDLE: Final = Measurement("idle", "idle worker, nothing to read", {"% of a core": (5, 2), "MiB": (1229, 819)}, idle)
FRESH: Final = Measurement(
    "fresh", f"freshness at {RATE:,} records/s", {"p50, s": (0.8, 0.3), "p99, s": (1.5, 0.6)}, fresh
)


def _produce(bootstrap: str, topic: str, stop: threading.Event) -> None:
    """Produces, every 10 ms, records whose values begin with the time, until `stop` is set."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    number, began = 0, time.monotonic()
    while not stop.wait(0.01):
        while number < (time.monotonic() - began) * RATE:
            key = b"%d" % (number * 7919 % 10_000)
            producer.produce(topic, _STAMP.pack(time.time()) + bytes(92), key, number % 2)
            number += 1
        producer.poll(0)
    producer.flush(30)


def _latencies(bootstrap: str, worker: Worker, seconds: float) -> list[float]:
    """Reads the output from its end for `seconds`; returns the seconds from produced to read of each record."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "fresh", "fetch.wait.max.ms": 10})
    ends = [consumer.get_watermark_offsets(TopicPartition(worker.output, one), 30)[1] for one in (0, 1)]
    consumer.assign([TopicPartition(worker.output, number, end) for number, end in enumerate(ends)])
    latencies: list[float] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for message in consumer.consume(10_000, 0.01):
            value = message.value()
            if value:
                latencies.append(time.time() - _STAMP.unpack(value[:8])[0])
    consumer.close()
    return latencies
