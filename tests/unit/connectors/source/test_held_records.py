"""What is copied from memory that librdkafka holds, and of which partition it is."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from hypothesis import given
from hypothesis import strategies as st

from compactor.errors import IngestError
from compactor.model.record import TopicPartition
from connectors.kafka.message_queue import open_queue
from connectors.source.arrow_records import Longs, PartitionSlots
from connectors.source.held_records import copied, to_arrow

BYTES = st.none() | st.binary(max_size=20)


class Place:
    """Bytes that lie somewhere in memory, each value in a buffer of its own."""

    def __init__(self, values: Sequence[bytes | None]) -> None:
        self._held = [None if value is None else ctypes.create_string_buffer(value) for value in values]
        self._sizes = [len(value or b"") for value in values]

    @property
    def columns(self) -> tuple[Longs, Longs]:
        places = [0 if each is None else ctypes.addressof(each) for each in self._held]
        return np.array(places, np.int64), np.array(self._sizes, np.int64)


@given(st.lists(st.tuples(BYTES, BYTES), min_size=1))
def test_keys_and_values_are_copied_as_they_are(records: list[tuple[bytes | None, bytes | None]]) -> None:
    """In the order of the records, whatever the order in memory; null is not empty."""
    keys, values = (Place([record[field] for record in records]) for field in (0, 1))
    got = copied(keys.columns, values.columns)
    assert [each.type for each in got] == [pa.binary()] * 2
    assert list(zip(*(each.to_pylist() for each in got), strict=True)) == records


POOL: Final = pa.proxy_memory_pool(pa.default_memory_pool())
"""Counts what is taken of memory; it outlives all arrays that it has made."""
_FAR: Final = 1 << 40
"""An address terabytes below those that the system chooses."""


@pytest.fixture
def far_away() -> Iterator[int]:
    """The address of 4 bytes, `away`, far from all other memory of this process."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 4]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = libc.mmap(_FAR, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, kind, -1, 0)
    ctypes.memmove(address, b"away", 4)
    yield address
    libc.munmap(address, mmap.PAGESIZE)


def test_memory_between_records_takes_none(far_away: int) -> None:
    """Arrow reserves what both values take, however far they lie from each other."""
    near = Place([b"near"])
    assert int(near.columns[0][0]) - far_away > 1 << 40
    before = pa.default_memory_pool()
    pa.set_memory_pool(POOL)
    try:
        keys, values = copied(near.columns, (np.array([far_away]), np.array([4])))
    finally:
        pa.set_memory_pool(before)
    assert (keys.to_pylist(), values.to_pylist()) == ([b"near"], [b"away"])
    assert POOL.max_memory() < 1 << 16


class Delivered:
    """Messages of t-1 from offset 7 on."""

    def __init__(self, size: int) -> None:
        self.records = np.arange(size)

    def topics(self, _records: Longs) -> list[tuple[str, None]]:
        return [("t", None)]

    def partitions(self, records: Longs) -> Longs:
        return np.ones(len(records), np.int64)

    def offsets(self, records: Longs) -> Longs:
        return records + 7


@pytest.mark.parametrize("asked", [TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("s", 1)])
def test_a_record_that_was_not_asked_for_is_an_error(asked: TopicPartition) -> None:
    """Of another partition, or of another topic."""
    messages: Any = Delivered(2)
    with pytest.raises(IngestError, match="t-1: a record at offset 7 was not asked for"):
        to_arrow(messages, np.zeros(1, np.int64), np.full(1, 9), PartitionSlots([asked]))


def test_records_outside_their_range_are_left_out() -> None:
    """They count as delivered."""
    messages: Any = Delivered(2)
    held = to_arrow(messages, np.zeros(1, np.int64), np.full(1, 7), PartitionSlots([TopicPartition("t", 1)]))
    assert held.records is None
    assert held.delivered.tolist() == [0, 0]


def test_the_installed_library_is_known() -> None:
    """With another version large ranges would be read at half the speed: read what has changed in it, then raise it."""
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    queue = open_queue(consumer, [])
    assert queue is not None
    queue.close()
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        open_queue(consumer, [])


def test_a_consumer_of_another_class_is_polled_as_it_is() -> None:
    """What it holds at the place of the pointer is not known."""

    class Other(Consumer):
        """Any other."""

    assert open_queue(cast("Consumer", object()), []) is None
    assert open_queue(Other({"group.id": "g", "log_level": 0}), []) is None
