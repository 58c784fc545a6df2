"""One connector on some thousand partitions: its start, a record to each, a round of cleaning, what commands take.

Topics have ten partitions each and are found by `topics.regex`. What is more than one broker can hold goes to several,
which share this machine.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from benchmarks.harness.call import call
from benchmarks.harness.datasets import scale
from benchmarks.harness.process import ROOT, Running
from benchmarks.harness.row import Measurement
from benchmarks.harness.topics import admin
from benchmarks.harness.watch import MIB, watch_idle
from benchmarks.peers.keyfold import OUTPUT_BY_TOPIC, command_on, group_of, running_worker
from compactor.catalog.catalog import Catalog
from compactor.catalog.commits import Checkpoint, checkpoint_path, encode
from compactor.storage.locations import open_storage
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.kafka.admin import OFFSETS_A_CALL, chunks

PER_TOPIC: Final = 10
_AT_ONCE: Final = 50
"""Topics that are made by one request: a broker that makes hundreds of partitions at once answers too late."""
_CREATE_S: Final = 300.0
_TIMEOUT_S: Final = 60.0
_REPEATS: Final = 3
_POLL_S: Final = 0.25
"""What asks for thousands of positions more often is itself a load."""
_SETTLE_S: Final = 5.0
_IDLE_S: Final = 30.0
"""Measured once everything is cleaned: what is left to clean would be taken for idleness."""
_CHANGES: Final = 5
"""Further records of the one key of each partition, so that a round of cleaning has something to remove everywhere."""
_BROKERS: Final = 2
_HEAP: Final = "1536m"
_PATIENT: Final = {"broker.session.timeout.ms": "60000"}
"""Brokers that share two cores with the rest may be silent for longer than the embedded one's three seconds."""


def large(bootstrap: str, partitions: int) -> dict[str, float]:
    """Measures a worker with one connector on `partitions` partitions; times are seconds."""
    partitions = max(PER_TOPIC, round(partitions * min(1.0, scale())))
    topics = call("fill topics", fill, bootstrap, partitions)
    group = f"bench-{uuid4().hex[:8]}"
    settings = {"topics.regex": f"{topics[0].rpartition('-')[0]}-[0-9]+", "output.topic": OUTPUT_BY_TOPIC}
    found: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory() as temporary,
        running_worker(bootstrap, "", Path(temporary), settings, {"listeners": ""}, name=group) as worker,
    ):
        folder, running = Path(temporary), worker.running
        reached = partial(_committed, bootstrap, group_of(group), topics)
        found["from the command until all are published, s"] = running.until(reached(1))
        took = [_published(running, bootstrap, topics, number, reached(number)) for number in range(2, 2 + _REPEATS)]
        found["a record to each partition, until published, s"] = statistics.median(took)
        last = 1 + _REPEATS + _CHANGES
        for number in range(2 + _REPEATS, last + 1):
            produce(bootstrap, topics, number)
        running.until(reached(last))
        found["a round of cleaning, all partitions, s"] = _command(folder, group, "clean", "--timeout", "1800")
        found["idle, % of a core"] = watch_idle(running, _SETTLE_S, _IDLE_S)["% of a core"]
        found["describe, s"] = _command(folder, group, "describe")
        found["a checkpoint of the catalog, s"] = _checkpoint(folder / "storage" / group, group)
        found["PSS, MiB"] = running.meter.peak_pss / MIB
    return found


def over_brokers(_bootstrap: str, partitions: int) -> dict[str, float]:
    """Does what `large` does, with the partitions on several brokers."""
    with brokers(_BROKERS) as bootstrap:
        return large(bootstrap, partitions)


@contextmanager
def brokers(count: int) -> Iterator[str]:
    """Runs a cluster of `count` brokers during the block; gives its bootstrap servers."""
    with tempfile.TemporaryDirectory(prefix="bench-kafka-", ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        first = stack.enter_context(EmbeddedKafka(Path(folder, "1"), properties=_PATIENT, heap=_HEAP))
        for number in range(2, count + 1):
            own = EmbeddedKafka(Path(folder, str(number)), properties=_PATIENT, heap=_HEAP, joins=first)
            stack.enter_context(own)
        yield first.bootstrap


def fill(bootstrap: str, partitions: int) -> tuple[str, ...]:
    """Makes the topics with a record in each of their partitions; returns their names."""
    stem = uuid4().hex[:6]
    topics = tuple(f"{stem}-{number}" for number in range(partitions // PER_TOPIC))
    for first in range(0, len(topics), _AT_ONCE):
        new = [
            NewTopic(topic, PER_TOPIC, 1, config={"retention.ms": "-1"}) for topic in topics[first : first + _AT_ONCE]
        ]
        for made in admin(bootstrap).create_topics(new, operation_timeout=_CREATE_S).values():
            made.result(_CREATE_S)
    produce(bootstrap, topics, 1)
    return topics


def produce(bootstrap: str, topics: tuple[str, ...], number: int) -> None:
    """Produces a record to each partition, all with the same key.

    A broker may learn late of a new topic: what it refuses is sent again. Raises RuntimeError where it goes on to.
    """
    waiting = [(topic, partition) for topic in topics for partition in range(PER_TOPIC)]
    until = time.monotonic() + _CREATE_S
    while waiting:
        waiting = _produced(bootstrap, waiting, b"%d" % number)
        if waiting and time.monotonic() > until:
            raise RuntimeError(f"records number {number} were not taken: {len(waiting)}, {waiting[:1]}")


def _produced(bootstrap: str, partitions: list[tuple[str, int]], value: bytes) -> list[tuple[str, int]]:
    """Produces a record to each partition; returns those that refused it.

    The client is a new one, which takes no topic for unknown.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "message.timeout.ms": 20_000, "log_level": 0})
    producer.list_topics(timeout=_TIMEOUT_S)  # else it asks for one topic after the other
    refused: list[tuple[str, int]] = []
    for topic, partition in partitions:
        again = partial(_note_refused, refused, (topic, partition))
        try:
            producer.produce(topic, value, b"key", partition, on_delivery=again)
        except KafkaException:  # the client knows by now that the topic is unknown
            refused.append((topic, partition))
        producer.poll(0)
    if producer.flush(_CREATE_S):
        raise RuntimeError("the broker takes no records")
    return refused


def _note_refused(refused: list[tuple[str, int]], partition: tuple[str, int], error: object, _: object) -> None:
    if error is not None:
        refused.append(partition)


def _published(
    running: Running, bootstrap: str, topics: tuple[str, ...], number: int, reached: Callable[[], bool]
) -> float:
    produce(bootstrap, topics, number)
    began = time.monotonic()
    running.until(reached)
    return time.monotonic() - began


def _committed(bootstrap: str, group: str, topics: tuple[str, ...], offset: int) -> Callable[[], bool]:
    """Returns a condition: `group` has committed `offset` in each partition.

    It asks no further than the first partitions that are waited for: to ask for all of ten thousand, four times a
    second, took a quarter of the machine.
    """
    partitions = [TopicPartition(topic, number) for topic in topics for number in range(PER_TOPIC)]
    waiting = list(chunks(partitions, OFFSETS_A_CALL))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})

    def reached() -> bool:
        time.sleep(_POLL_S)
        while waiting:
            try:
                held = consumer.committed(list(waiting[-1]), _TIMEOUT_S)
            except KafkaException:  # the group has no coordinator yet
                return False
            if not all(one.error is None and one.offset >= offset for one in held):
                return False
            waiting.pop()
        return True

    return reached


def _command(folder: Path, name: str, command: str, *options: str) -> float:
    """Runs a command of keyfold on the connector; returns its seconds. Raises CalledProcessError."""
    began = time.monotonic()
    done = subprocess.run(command_on(command, folder, name, *options), check=True, capture_output=True, cwd=ROOT)
    took = time.monotonic() - began
    assert json.loads(done.stdout), command
    return took


def _checkpoint(folder: Path, name: str) -> float:
    """Encodes and writes the catalog's state as a checkpoint elsewhere; returns the seconds."""
    state = Catalog.open(open_storage(str(folder)), name).state
    with tempfile.TemporaryDirectory() as elsewhere:
        began = time.monotonic()
        made = Checkpoint(format=1, version=1, epoch=1, at_ms=0, commit_id="", state=state)
        open_storage(elsewhere).create(checkpoint_path(1), encode(made))
        return time.monotonic() - began


def _row(partitions: int, *, several: bool) -> Measurement:
    name, what = f"large-{partitions}", f"one connector on {partitions:,} partitions"
    return Measurement(
        f"{name}-brokers" if several else name,
        f"{what} of {_BROKERS} brokers" if several else what,
        {},
        partial(over_brokers if several else large, partitions=partitions),
        broker=not several,
    )


LARGE: Final = (
    _row(1_000, several=False),
    _row(3_000, several=False),
    _row(1_000, several=True),
    _row(10_000, several=True),
)
"""How times grow is read from the last two, which have the same brokers on the same processors."""
