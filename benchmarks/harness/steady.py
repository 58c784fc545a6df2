"""A steady load and its reader, in two processes: records stamped with their creation, seen by a committed reader.

Every record that was created in a window counts, whenever it is read: a program that stops for a while does not get
better figures by it. A record that was folded away before it was published is never seen; keys are therefore many.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from msgspec import Struct

from benchmarks.harness.change_events import key_of, stamp_of, stamped_event
from benchmarks.harness.latencies import Latencies
from benchmarks.harness.topics import end_offsets, send

_TICK_S: Final = 0.02
_QUIET_S: Final = 1.0
_STARTED_S: Final = 60.0
_FLUSH_S: Final = 60.0
_STAMP: Final = struct.Struct(">d")


class Load(Struct, frozen=True, kw_only=True):
    """`rate` records per second to each of `topics`, of `keys` keys each, evenly over its `partitions`.

    All that is created in one tick goes to one partition of a topic, the next tick's to the next one, as Java's
    producer fills a batch: the broker is not kept busy with requests of one record.
    """

    topics: tuple[str, ...]
    partitions: int
    rate: float
    keys: int
    value_bytes: int = 100
    is_events: bool = False
    """Whether values are change events in Avro, which are read as rows (`change_events`)."""

    def batch(self, topic: int, tick: int, sent: int, seconds: float) -> tuple[int, range]:
        """Returns the partition of tick `tick` of the topic with this number, and the records due by `seconds`."""
        return (topic + tick) % self.partitions, range(sent, max(sent, int(self.rate * seconds)))

    def key(self, partition: int, number: int) -> bytes:
        """Returns the key of the record with this number in its partition, one that only this partition has.

        A key comes again after `keys` records of its topic.
        """
        own = number % max(1, self.keys // self.partitions)
        return key_of(own * self.partitions + partition) if self.is_events else b"%d-%d" % (partition, own)

    def value(self, stamp: float) -> bytes:
        """Returns a value with a time (seconds)."""
        return stamped_event(stamp) if self.is_events else _STAMP.pack(stamp) + bytes(self.value_bytes - _STAMP.size)

    def stamp_of(self, value: bytes) -> float:
        """Returns the time of what has become of a value."""
        return stamp_of(value) if self.is_events else float(_STAMP.unpack_from(value)[0])


class Produced(Struct, frozen=True):
    """What a load came to: acknowledged records of all topics, and the seconds it took."""

    records: int
    seconds: float

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds if self.seconds > 0 else 0.0


class Steady:
    """A load and a reader that run; made by `steady`."""

    def __init__(self, bootstrap: str, load: Load, folder: Path, pool: ProcessPoolExecutor) -> None:
        self._load, self._bootstrap, self._folder, self._pool = load, bootstrap, folder, pool
        self._stop_load, self._stop_reader = folder / "stop-load", folder / "stop-reader"
        self._reader: Future[Latencies] | None = None
        self._producer: Future[Produced] | None = None

    def begin(self, outputs: tuple[str, ...]) -> None:
        """Begins to read `outputs` from their ends, and, once that is so, to produce."""
        started = self._folder / "reading"
        self._reader = self._pool.submit(_read, self._bootstrap, self._load, outputs, started, self._stop_reader)
        deadline = time.monotonic() + _STARTED_S
        while not started.exists():
            if self._reader.done() or time.monotonic() > deadline:
                raise RuntimeError(f"the reader did not begin: {self._reader.exception(0)}")
            time.sleep(_TICK_S)
        self._producer = self._pool.submit(_produce, self._bootstrap, self._load, self._stop_load)

    def end_load(self) -> Produced:
        """Stops producing; returns what was produced once all of it is acknowledged."""
        self._stop_load.touch()
        assert self._producer is not None
        return self._producer.result()

    def end(self) -> Latencies:
        """Stops reading once nothing came for a second; returns the latencies of all that was read."""
        self.stop()
        assert self._reader is not None
        return self._reader.result()

    def stop(self) -> None:
        """Has both processes end, and waits for neither."""
        self._stop_load.touch()
        self._stop_reader.touch()


@contextmanager
def steady(bootstrap: str, load: Load, folder: Path) -> Iterator[Steady]:
    """Has two processes for a load and its reader during the block; `folder` is there for their signals."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        made = Steady(bootstrap, load, folder, pool)
        try:
            yield made
        finally:
            made.stop()


def _produce(bootstrap: str, load: Load, stop: Path) -> Produced:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": "lz4", "log_level": 0})
    sent, tick, began = [0] * len(load.topics), 0, time.monotonic()
    numbers = [[0] * load.partitions for _ in load.topics]
    while not stop.exists():
        seconds = time.monotonic() - began
        for number, topic in enumerate(load.topics):
            partition, due = load.batch(number, tick, sent[number], seconds)
            value = load.value(time.time())
            for _ in due:
                send(producer, topic, value, load.key(partition, numbers[number][partition]), partition)
                numbers[number][partition] += 1
            sent[number] = due.stop
        tick += 1
        producer.poll(0)
        time.sleep(max(0.0, began + tick * _TICK_S - time.monotonic()))
    unsent = producer.flush(_FLUSH_S)
    if unsent:
        raise RuntimeError(f"{unsent} records of a steady load were not taken")
    return Produced(sum(sent), time.monotonic() - began)


def _read(bootstrap: str, load: Load, topics: tuple[str, ...], started: Path, stop: Path) -> Latencies:
    """Reads from the ends that `topics` have now, committed records only, until `stop` and a quiet second."""
    settings = {"group.id": "freshness", "isolation.level": "read_committed", "fetch.wait.max.ms": 10}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings, "log_level": 0})
    consumer.assign(
        [TopicPartition(topic, *place) for topic in topics for place in end_offsets(bootstrap, topic).items()]
    )
    started.touch()
    found, heard = Latencies(), time.monotonic()
    while not (stop.exists() and time.monotonic() - heard > _QUIET_S):
        messages = consumer.consume(10_000, 0.01)
        seen = time.time()
        for message in messages:
            value, topic = message.value(), message.topic()
            if message.error() is None and isinstance(value, bytes) and len(value) >= _STAMP.size and topic:
                found.add(topic, load.stamp_of(value), seen)
        heard = time.monotonic() if messages else heard
    consumer.close()
    return found
