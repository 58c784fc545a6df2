"""A steady load and its reader, in two processes: records stamped with their creation, seen by a committed reader.

Every record that was created in a window counts, whenever it is read: a program that stops for a while does not get
better figures by it. A record that was folded away before it was published is never seen; keys are therefore many.
"""

from __future__ import annotations

import math
import struct
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from msgspec import Struct

from benchmarks.harness.change_events import key_of, stamp_of, stamped_event
from benchmarks.harness.latencies import Latencies
from benchmarks.harness.topics import end_offsets, send

_TICK_S: Final = 0.02
_QUIET_S: Final = 1.0
_LAST_S: Final = 20.0
"""Seconds after the end of the load in which records are still seen: a program that is far behind takes long."""
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
        own = number % self._partition_keys
        return key_of(own * self.partitions + partition) if self.is_events else b"%d-%d" % (partition, own)

    def partition_keys(self, partition: int) -> Iterator[bytes]:
        """Yields the keys of a partition without an end; each is made once.

        At 100,000 records/s what makes keys would take much of the cores that the measured program shares.
        """
        return cycle(self.key(partition, number) for number in range(self._partition_keys))

    @property
    def _partition_keys(self) -> int:
        return max(1, self.keys // self.partitions)

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
    keys = [[load.partition_keys(partition) for partition in range(load.partitions)] for _ in load.topics]
    sent, tick, began = [0] * len(load.topics), 0, time.monotonic()
    while not stop.exists():
        seconds = time.monotonic() - began
        for number, topic in enumerate(load.topics):
            partition, due = load.batch(number, tick, sent[number], seconds)
            value = load.value(time.time())
            for key in islice(keys[number][partition], len(due)):
                try:
                    producer.produce(topic, value, key, partition)
                except BufferError:
                    send(producer, topic, value, key, partition)
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
    stopped = math.inf
    while time.monotonic() - heard <= _QUIET_S or not stop.exists():
        stopped = min(stopped, time.monotonic()) if stop.exists() else stopped
        if time.monotonic() - stopped > _LAST_S:
            break
        messages = consumer.consume(10_000, 0.01)
        _count(found, load, messages, time.time())
        heard = time.monotonic() if messages else heard
    consumer.close()
    return found


def _count(found: Latencies, load: Load, messages: Sequence[Message], seen: float) -> None:
    """Adds records that were read together; all that a tick made of a topic have one value, so they count at once."""
    records = (one for one in messages if one.error() is None)
    for (topic, value), count in Counter((one.topic(), one.value()) for one in records).items():
        if topic and isinstance(value, bytes) and len(value) >= _STAMP.size:
            found.add(topic, load.stamp_of(value), seen, count)
