"""One worker by itself: seconds until it is ready, what it uses while idle, how fresh its output is."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from benchmarks.harness.datasets import ONE, DataSet, filled_topic
from benchmarks.harness.row import Measurement
from benchmarks.harness.s3_server import s3_server
from benchmarks.harness.steady import Load
from benchmarks.harness.watch import Subject, watch, watch_idle
from benchmarks.peers.keyfold import running_worker

SETTLE_S: Final = 30.0
IDLE_SETTLE_S: Final = 120.0
"""First full folds and the first vacuum come a minute after a start; unused producers go within a minute and a half."""
WATCH_S: Final = 60.0
RATE: Final = 5_000
"""Records per second that are produced while freshness is measured."""
KEYS: Final = 100_000
"""A key comes again after 20 s: few records are folded away before they are published, and not seen."""
PARTITIONS: Final = 2
FIRST: Final = DataSet(name="fresh", records=PARTITIONS, keys=PARTITIONS, partitions=PARTITIONS)
"""Published before the load begins, which then meets a worker that runs."""
FRESH_S: Final = 40.0
STORE_RATE: Final = 1_000
DELAY_MS: Final = 20
"""What a request to an object store of the same region takes."""


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
        return watch_idle(worker.running, IDLE_SETTLE_S, WATCH_S)


def fresh(bootstrap: str) -> dict[str, float]:
    """Measures seconds from created to visible for a read_committed reader, at RATE records/s over KEYS keys."""
    topic = filled_topic(bootstrap, FIRST)
    load = Load(topics=(topic,), partitions=PARTITIONS, rate=RATE, keys=KEYS)
    with tempfile.TemporaryDirectory() as folder, running_worker(bootstrap, topic, Path(folder)) as worker:
        worker.running.until(worker.published())
        subject = Subject(worker.running, bootstrap, (worker.output,), worker.published)
        return watch(subject, load, Path(folder, "signals"), SETTLE_S, FRESH_S).values()


def fresh_store(bootstrap: str) -> dict[str, float]:
    """Measures the same at STORE_RATE records/s with storage in an object store, each request DELAY_MS late."""
    topic = filled_topic(bootstrap, FIRST)
    load = Load(topics=(topic,), partitions=PARTITIONS, rate=STORE_RATE, keys=KEYS)
    with (
        s3_server(DELAY_MS) as keys,
        tempfile.TemporaryDirectory() as folder,
        running_worker(bootstrap, topic, Path(folder), worker_settings=keys) as worker,
    ):
        worker.running.until(worker.published())
        subject = Subject(worker.running, bootstrap, (worker.output,), worker.published)
        return watch(subject, load, Path(folder, "signals"), SETTLE_S, FRESH_S).values()


READY: Final = Measurement("ready", "from the command to the first published record", {"published, s": (4, 3)}, ready)
IDLE: Final = Measurement(
    "idle", "idle worker, nothing to read", {"% of a core": (5, 2), "PSS, MiB": (1229, 819)}, idle
)
FRESH: Final = Measurement(
    "fresh", f"freshness at {RATE:,} records/s", {"p50, s": (0.4, 0.25), "p99, s": (1.0, 0.6)}, fresh
)
FRESH_STORE: Final = Measurement(
    "fresh-store",
    f"freshness at {STORE_RATE:,} records/s, storage in an object store, {DELAY_MS} ms a request",
    {"p50, s": (1.2, 0.8)},
    fresh_store,
)
