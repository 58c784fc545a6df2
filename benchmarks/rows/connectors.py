"""Many connectors in one worker: how fresh their output is, what they use while idle, and beside a backlog."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

from confluent_kafka import Producer

from benchmarks.harness.call import call
from benchmarks.harness.datasets import DataSet, fill, scale
from benchmarks.harness.row import Measurement
from benchmarks.harness.steady import Load
from benchmarks.harness.topics import committed_to_end, create_topic
from benchmarks.harness.watch import Subject, watch, watch_idle, watch_until
from benchmarks.peers.keyfold import OUTPUT_BY_TOPIC, Connectors, group_of, running_connectors, write_connector
from benchmarks.rows.worker import IDLE_SETTLE_S

CONNECTORS: Final = 20
PARTITIONS: Final = 10
RATE: Final = 100.0
"""Records per second of each connector, over all partitions of its topic."""
TENFOLD: Final = RATE * PARTITIONS
"""RATE for each partition."""
KEYS: Final = 20_000
"""Keys of each topic: a key comes again after 200 s, or 20 s in `many-tenfold`."""
BACKLOG: Final = DataSet(name="beside", records=50_000_000, keys=5_000_000, partitions=PARTITIONS)
SETTLE_S: Final = 30.0
WINDOW_S: Final = 60.0
_FIRST: Final = "command to a published record of each connector, s"


def many(bootstrap: str, rate: float) -> dict[str, float]:
    """Measures seconds from creation to visible at `rate` records/s of each of CONNECTORS connectors of one worker."""
    topics = filled_topics(bootstrap, _scaled(CONNECTORS))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with running_connectors(bootstrap, topics, folder) as worker:
            first = worker.until_published()
            load = Load(topics=topics, partitions=PARTITIONS, rate=rate, keys=KEYS)
            found = watch(_subject(worker, worker.outputs), load, folder / "signals", SETTLE_S, WINDOW_S)
    return {
        **found.values(),
        "p99 of the slowest connector, s": found.latencies.slowest(worker.outputs, 0.99),
        _FIRST: first,
    }


def idle(bootstrap: str, connectors: int) -> dict[str, float]:
    """Measures what `idle` of one connector does, of a worker with so many connectors with nothing to read."""
    topics = filled_topics(bootstrap, _scaled(connectors))
    with tempfile.TemporaryDirectory() as folder, running_connectors(bootstrap, topics, Path(folder)) as worker:
        first = worker.until_published()
        return {**watch_idle(worker.running, IDLE_SETTLE_S, WINDOW_S), _FIRST: first}


def beside(bootstrap: str) -> dict[str, float]:
    """Measures seconds from creation to visible of connectors with small loads while one of them reads a backlog.

    The last connector gets the backlog's topic by a changed file and SIGHUP, so that no start is part of it.
    """
    data, topics = BACKLOG.scaled(scale()), filled_topics(bootstrap, _scaled(CONNECTORS))
    backlog = f"backlog-{uuid4().hex[:6]}"
    call("fill the backlog", fill, bootstrap, backlog, data)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with running_connectors(bootstrap, topics, folder) as worker:
            worker.until_published()
            load = Load(topics=topics[:-1], partitions=PARTITIONS, rate=RATE, keys=KEYS)
            took: list[float] = []

            def restart() -> Callable[[], bool]:
                began = time.monotonic()
                _add_topic(worker, backlog)
                committed = committed_to_end(bootstrap, group_of(worker.names[-1]), backlog)
                return lambda: committed() and _noted(took, time.monotonic() - began)

            subject = _subject(worker, worker.outputs[:-1])
            found = watch_until(subject, load, folder / "signals", SETTLE_S, restart)
    return {**found.values(), "backlog, s": took[0], "backlog, records/s": data.records / took[0]}


def _add_topic(worker: Connectors, topic: str) -> None:
    """Adds `topic` to those of the last connector."""
    settings = {"output.topic": OUTPUT_BY_TOPIC}
    write_connector(worker.folder, worker.names[-1], f"{worker.topics[-1]},{topic}", settings)
    os.kill(worker.running.process.pid, signal.SIGHUP)


def _noted(found: list[float], value: float) -> bool:
    """Appends `value`; true, as it is part of a condition."""
    found.append(value)
    return True


def _subject(worker: Connectors, outputs: tuple[str, ...]) -> Subject:
    return Subject(worker.running, worker.bootstrap, outputs, worker.published)


def _scaled(connectors: int) -> int:
    return max(2, round(connectors * min(1.0, scale())))


def filled_topics(bootstrap: str, count: int) -> tuple[str, ...]:
    """Makes so many topics with a record each; returns their names."""
    return call("fill topics", _fill_topics, bootstrap, count)


def _fill_topics(bootstrap: str, count: int) -> tuple[str, ...]:
    stem = uuid4().hex[:6]
    topics = tuple(f"{stem}-{number}" for number in range(count))
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for topic in topics:
        create_topic(bootstrap, topic, PARTITIONS)
        producer.produce(topic, b"first", b"first", 0)
    if producer.flush(60):
        raise RuntimeError("the first records were not taken")
    return topics


MANY: Final = Measurement(
    "many",
    f"freshness of {CONNECTORS} connectors of {PARTITIONS} partitions, {CONNECTORS * RATE:,g} records/s in all",
    {"p50, s": (0.8, 0.4), "p99, s": (2, 1)},
    partial(many, rate=RATE),
)
MANY_TENFOLD: Final = Measurement(
    "many-tenfold",
    f"freshness of {CONNECTORS} connectors of {PARTITIONS} partitions, {CONNECTORS * TENFOLD:,g} records/s in all",
    {},
    partial(many, rate=TENFOLD),
)
IDLE_20: Final = Measurement(
    "idle-20",
    "20 idle connectors in a worker, no record anywhere for two minutes before",
    {"% of a core": (5, 2), "PSS, MiB": (1331, 1024)},
    partial(idle, connectors=20),
)
IDLE_100: Final = Measurement(
    "idle-100",
    "100 idle connectors in a worker",
    {"% of a core": (20, 20), "PSS, MiB": (3072, 3072)},
    partial(idle, connectors=100),
)
BESIDE: Final = Measurement(
    "beside",
    f"freshness of {CONNECTORS - 1} connectors, {RATE:g} records/s each, beside one with {BACKLOG.records / 1e6:g} M"
    " records to read",
    {"p99, s": (3, 3)},
    beside,
)
