"""Data sets by name, and the producers that fill a topic with one."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Final
from uuid import uuid4

from confluent_kafka import Producer
from msgspec import Struct
from msgspec.structs import replace

from benchmarks.harness import change_events
from benchmarks.harness.call import call
from benchmarks.harness.topics import create_topic, send

_TIMEOUT_S: Final = 60.0
_POOL_BYTES: Final = 1 << 20
"""Values are cut from this many random bytes: values that compress well would flatter the writer."""
_QUEUE: Final = 200_000


class DataSet(Struct, frozen=True, kw_only=True):
    """`records` records with values of `value_bytes` over `keys` keys, a share of them `tombstones`.

    Keys are uniformly distributed, or by Zipf's law with exponent 1. `events`: the records are those of
    `change_events` in this form, and have a size of their own. `json_keys`: keys are objects of JSON. `hot`: the share
    of all records and keys that partition 0 has; 0 is as many as the others have.
    """

    name: str
    records: int = 5_000_000
    keys: int = 500_000
    value_bytes: int = 100
    tombstones: float = 0.0
    zipf: bool = False
    partitions: int = 2
    events: str = ""
    json_keys: bool = False
    hot: float = 0.0

    def scaled(self, factor: float) -> DataSet:
        """Returns the data set with `factor` times as many records and keys."""
        records, keys = max(self.partitions, round(self.records * factor)), max(1, round(self.keys * factor))
        return replace(self, records=records, keys=keys)


DATA_SETS: Final = {
    one.name: one
    for one in (
        DataSet(name="small"),
        DataSet(name="20M", records=20_000_000, keys=2_000_000),
        DataSet(name="1KiB", records=1_000_000, keys=100_000, value_bytes=1024),
        DataSet(name="unique", records=10_000_000, keys=10_000_000),
        DataSet(name="tombstones", records=2_000_000, keys=200_000, tombstones=0.9),
        DataSet(name="zipf", zipf=True),
        DataSet(name="1-partition", records=10_000_000, keys=1_000_000, partitions=1),
        DataSet(name="500k", records=500_000, keys=50_000),
        DataSet(name="change-events", records=1_000_000, keys=100_000, events=change_events.AVRO),
        DataSet(name="change-events-json", records=500_000, keys=50_000, events=change_events.JSON),
        DataSet(name="change-rows", records=1_000_000, keys=100_000, events=change_events.ROWS),
        DataSet(name="64-partitions", records=10_000_000, keys=1_000_000, partitions=64),
    )
}

ONE: Final = DataSet(name="one", records=1, keys=1, partitions=1)
"""For what needs no more than a record."""

SCALE: Final = "BENCH_SCALE"
"""Environment variable with the factor by which all numbers of records are multiplied; children inherit it."""


def scale() -> float:
    """Returns the factor by which all numbers of records are multiplied."""
    return float(os.environ.get(SCALE, "1"))


def named(name: str) -> DataSet:
    """Returns the data set `name`, scaled."""
    return DATA_SETS[name].scaled(scale())


def first_records(data: DataSet) -> DataSet:
    """Returns a record for each partition of `data`, on which a program's start is measured."""
    return replace(data, records=data.partitions, keys=data.partitions, tombstones=0.0)


def filled_topic(bootstrap: str, data: DataSet) -> str:
    """Fills a new topic with `data` in a child process; returns its name."""
    return call(f"fill {data.name}", _fill_new, bootstrap, data)


def fill(bootstrap: str, topic: str, data: DataSet) -> float:
    """Makes `topic` and produces `data` to it; returns the seconds of producing."""
    create_topic(bootstrap, topic, data.partitions)
    return produce(bootstrap, topic, data)


def produce(bootstrap: str, topic: str, data: DataSet) -> float:
    """Produces `data` to `topic`, two partitions at a time; returns the seconds it took."""
    began = time.monotonic()
    with ProcessPoolExecutor(min(2, data.partitions), get_context("spawn")) as pool:
        list(pool.map(partial(_produce_partition, bootstrap, topic, data), range(data.partitions)))
    return time.monotonic() - began


def partition_records(data: DataSet, partition: int) -> int:
    """Returns how many records of `data` go to `partition`."""
    return _part(data, data.records, partition)


def _part(data: DataSet, count: int, partition: int) -> int:
    """Returns how many of `count` records or keys `partition` has."""
    first = round(count * data.hot)
    if data.hot and partition == 0:
        return first
    left, others = (count - first, data.partitions - 1) if data.hot else (count, data.partitions)
    return left // others + (partition - bool(data.hot) < left % others)


def _fill_new(bootstrap: str, data: DataSet) -> str:
    topic = f"{data.name}-{uuid4().hex[:6]}"
    fill(bootstrap, topic, data)
    return topic


def _produce_partition(bootstrap: str, topic: str, data: DataSet, partition: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": _QUEUE,
            "compression.type": "lz4",
        }
    )
    for key, value in _records(data, partition):
        send(producer, topic, value, key, partition)
    unsent = producer.flush(_TIMEOUT_S)
    if unsent:
        raise RuntimeError(f"{unsent} records of {topic}-{partition} were not taken")


def _records(data: DataSet, partition: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Yields (key, value); each key belongs to one partition, as with a producer that partitions by key."""
    chance = random.Random(f"{data.name}-{partition}")
    pool, size = chance.randbytes(_POOL_BYTES + data.value_bytes), data.value_bytes
    keys = max(1, _part(data, data.keys, partition) if data.hot else data.keys // data.partitions)
    count = partition_records(data, partition)
    if data.events:
        yield from change_events.records(chance, partition * keys, keys, count, data.events)
        return
    for number in range(count):
        if data.keys >= data.records:
            key = number
        elif data.zipf:
            key = int(keys ** chance.random()) - 1  # ranks whose logarithm is uniform: Zipf's law with exponent 1
        else:
            key = int(chance.random() * keys)
        start = int(chance.random() * _POOL_BYTES)
        gone = data.tombstones and chance.random() < data.tombstones
        name = (b'{"p":%d,"k":%d}' if data.json_keys else b"%d-%010d") % (partition, key)
        yield name, None if gone else pool[start : start + size]
