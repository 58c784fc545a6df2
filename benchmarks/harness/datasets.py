"""The data that is measured on, by name, and how it gets into a topic."""

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

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic
from msgspec import Struct
from msgspec.structs import replace

from benchmarks.harness import alone
from benchmarks.peers.committed import client, ends

_TIMEOUT_S: Final = 60.0
_POOL_BYTES: Final = 1 << 20
"""Values are cut from so many random bytes: what compresses well would flatter whoever writes it."""
_QUEUE: Final = 200_000


class DataSet(Struct, frozen=True, kw_only=True):
    """Records of `value_bytes` over `keys` keys; a share of `tombstones`; keys evenly often, or by Zipf's law."""

    name: str
    records: int = 5_000_000
    keys: int = 500_000
    value_bytes: int = 100
    tombstones: float = 0.0
    zipf: bool = False
    partitions: int = 2

    def scaled(self, factor: float) -> DataSet:
        """The same with `factor` times as many records and keys."""
        records, keys = max(self.partitions, round(self.records * factor)), max(1, round(self.keys * factor))
        return replace(self, records=records, keys=keys)


DATA_SETS: Final = {
    one.name: one
    for one in (
        DataSet(name="small"),
        DataSet(name="1KiB", records=1_000_000, keys=100_000, value_bytes=1024),
        DataSet(name="unique", records=1_000_000, keys=1_000_000),
        DataSet(name="tombstones", records=2_000_000, keys=200_000, tombstones=0.9),
        DataSet(name="zipf", zipf=True),
        DataSet(name="1-partition", records=2_000_000, keys=200_000, partitions=1),
        DataSet(name="500k", records=500_000, keys=50_000),
        DataSet(name="64-partitions", records=2_000_000, keys=200_000, partitions=64),
    )
}


ONE: Final = DataSet(name="one", records=1, keys=1, partitions=1)
"""What a program's start is measured on."""


SCALE: Final = "BENCH_SCALE"
"""The variable that says how many times as many records there are as written here: processes give it on."""


def scale() -> float:
    """How many times as many records as written here are measured."""
    return float(os.environ.get(SCALE, "1"))


def named(name: str) -> DataSet:
    """The data set `name` as it is measured now."""
    return DATA_SETS[name].scaled(scale())


def filled(bootstrap: str, data: DataSet) -> str:
    """The name of a new topic with `data`, filled by a process of its own."""
    return alone.call(f"fill {data.name}", _new, bootstrap, data)


def fill(bootstrap: str, topic: str, data: DataSet) -> float:
    """Makes `topic` and puts `data` into it; the seconds it took without the making."""
    make(bootstrap, topic, data.partitions)
    return fill_more(bootstrap, topic, data)


def fill_more(bootstrap: str, topic: str, data: DataSet) -> float:
    """Puts `data` into `topic`, two partitions at a time; the seconds it took."""
    began = time.monotonic()
    with ProcessPoolExecutor(min(2, data.partitions), get_context("spawn")) as pool:
        list(pool.map(partial(_fill, bootstrap, topic, data), range(data.partitions)))
    return time.monotonic() - began


def make(bootstrap: str, topic: str, partitions: int, policy: str = "delete") -> None:
    """An empty topic that loses nothing by age; returns once its partitions have leaders."""
    config = {"cleanup.policy": policy, "retention.ms": "-1"}
    admin = client(bootstrap)
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(_TIMEOUT_S)
    until = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            ends(bootstrap, topic)
            return
        except KafkaException:
            if time.monotonic() >= until:
                raise
            time.sleep(0.1)


def share(data: DataSet, partition: int) -> int:
    """How many records of `data` partition number `partition` gets."""
    return data.records // data.partitions + (partition < data.records % data.partitions)


def _new(bootstrap: str, data: DataSet) -> str:
    topic = f"{data.name}-{uuid4().hex[:6]}"
    fill(bootstrap, topic, data)
    return topic


def _fill(bootstrap: str, topic: str, data: DataSet, partition: int) -> None:
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
        while True:
            try:
                producer.produce(topic, value, key, partition)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(_TIMEOUT_S)
    if left:
        raise RuntimeError(f"{left} records of {topic}-{partition} were not taken")


def _records(data: DataSet, partition: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Each key belongs to one partition, as a producer that chooses by key has it."""
    chance = random.Random(f"{data.name}-{partition}")
    pool, size = chance.randbytes(_POOL_BYTES + data.value_bytes), data.value_bytes
    keys, count = max(1, data.keys // data.partitions), share(data, partition)
    for number in range(count):
        if data.keys >= data.records:
            key = number
        elif data.zipf:
            key = int(keys ** chance.random()) - 1  # ranks whose logarithm is even: Zipf's law with exponent 1
        else:
            key = int(chance.random() * keys)
        start = int(chance.random() * _POOL_BYTES)
        gone = data.tombstones and chance.random() < data.tombstones
        yield b"%d-%010d" % (partition, key), None if gone else pool[start : start + size]
