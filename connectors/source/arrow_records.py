"""Makes Arrow batches of librdkafka's messages; only this module of the source handles single records in Python.

`held_records.py` makes them without that, if there is much to read and the library is a known one.

Each field is read by `map` over the method itself, so that no bytecode runs for a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
from confluent_kafka import Message
from numpy.typing import NDArray

from compactor.errors import DEFECT, IngestError
from compactor.model.record import HEADERS, RANGE, SOURCE, TopicPartition, sizes
from connectors.kafka.consumers import headers_of_all
from connectors.source.plan import SourceRange

Longs = NDArray[np.int64]
_HEADER_BYTES: Final = 64
"""What a header takes in Arrow (12 bytes and two bits) and as a tuple of Python, when its record is written."""
READ: Final = SOURCE.remove(SOURCE.get_field_index("range"))


class PartitionSlots:
    """Numbers the partitions of one split: a message's slot indexes arrays with one element per partition."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        self._index = {tuple(tp): number for number, tp in enumerate(partitions)}
        slots: dict[str, dict[int, int]] = {}
        for number, tp in enumerate(partitions):
            slots.setdefault(tp.topic, {})[tp.partition] = number
        self._slots_of = {topic: _by_number(of_topic) for topic, of_topic in slots.items()}
        self._topics = pa.array([tp.topic for tp in partitions], pa.string())
        self._partitions = pa.array([tp.partition for tp in partitions], pa.int32())

    def __len__(self) -> int:
        return len(self._index)

    def of(self, messages: Sequence[Message]) -> Longs:
        """Returns the slot of each message; raises IngestError for one of a partition that is not in the split.

        A kept consumer could have it from an older assignment, and nothing else would show that.
        """
        if len(self._slots_of) != 1:
            return self._of_topics(messages)
        numbers = np.fromiter(map(Message.partition, messages), np.int64, len(messages))
        slots = self.of_topic(next(iter(self._slots_of)), numbers)
        ours = set(map(Message.topic, messages)) <= self._slots_of.keys()
        if not ours or (slots < 0).any():
            raise self._strange(messages)
        return slots

    def of_topic(self, topic: str, numbers: Longs) -> Longs:
        """Returns the slots of partitions of `topic`, by their numbers; -1 if one is not in the split."""
        slot_of = self._slots_of.get(topic, _NO_SLOTS)
        return slot_of[np.minimum(numbers, len(slot_of) - 1)]

    def _of_topics(self, messages: Sequence[Message]) -> Longs:
        places = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
        try:
            return np.fromiter(map(self._index.__getitem__, places), np.int64, len(messages))
        except KeyError:
            raise self._strange(messages) from None

    def _strange(self, messages: Sequence[Message]) -> IngestError:
        strange = next(each for each in messages if (each.topic(), each.partition()) not in self._index)
        where = f"{strange.topic()}-{strange.partition()}"
        return IngestError(f"{where}: a record at offset {strange.offset()} was not asked for.", DEFECT)

    def columns(self, slots: Longs) -> tuple[pa.Array, pa.Array]:
        """Returns the columns topic and partition of messages with these slots."""
        taken = pa.array(slots)
        return self._topics.take(taken), self._partitions.take(taken)


_NO_SLOTS: Final = np.full(1, -1, np.int64)


def _by_number(slots: Mapping[int, int]) -> Longs:
    """Returns the slot of each partition of one topic, by number; -1 if it has none, and as last element."""
    by_number = np.full(2 + max(slots), -1, np.int64)
    by_number[list(slots)] = list(slots.values())
    return by_number


def faulty(messages: Sequence[Message]) -> list[int]:
    """Returns the indexes of those `messages` that are errors in place of records.

    Compared by identity, as an error takes no comparison with None.
    """
    if not any(map(Message.error, messages)):
        return []
    return [number for number, error in enumerate(map(Message.error, messages)) if error is not None]


def within(messages: list[Message], slots: Longs, lows: Longs, highs: Longs) -> tuple[list[Message], Longs, Longs]:
    """Returns the messages with an offset in [low, high) of their slot, with their slots and offsets.

    A poll may bring records after a range's end, and a reassigned partition old ones.
    """
    offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
    keep = (offsets >= lows[slots]) & (offsets < highs[slots])
    if keep.all():
        return messages, slots, offsets
    kept = [messages[number] for number in np.flatnonzero(keep)]
    return kept, slots[keep], offsets[keep]


def to_arrow(messages: Sequence[Message], slots: Longs, offsets: Longs, partitions: PartitionSlots) -> pa.RecordBatch:
    """Makes a batch of `READ` (`SOURCE` without `range`) of messages, in their order.

    Headers with a name that is not UTF-8 are left out, and the record is rejected for it.
    """
    size = len(messages)
    # One pass, and each pair is taken apart at once: no list of thousands of tuples.
    pairs = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * size)
    kinds, stamps = pairs[::2], pairs[1::2]
    keys = pa.array(list(map(Message.key, messages)), pa.binary())
    values = pa.array(list(map(Message.value, messages)), pa.binary())
    return batch_of(partitions.columns(slots), offsets, (stamps, kinds), (keys, values), headers_of_all(messages))


def batch_of(
    places: tuple[pa.Array, pa.Array],
    offsets: Longs,
    times: tuple[NDArray[Any], NDArray[Any]],
    contents: tuple[pa.Array, pa.Array],
    headers: tuple[Sequence[Any], Mapping[int, str]],
) -> pa.RecordBatch:
    """Makes a batch of `READ` of records given by columns: topics and partitions, offsets, times, keys and values.

    `times` are ms and their kinds as librdkafka counts: 0 not available, 1 CreateTime, 2 LogAppendTime. Each is one
    more than Kafka's own id. `headers` are those of each record, and by index why a record is rejected for its own.
    """
    (stamps, kinds), (pairs, odd), size = times, headers, len(offsets)
    rejected = pa.nulls(size, pa.string())
    if odd:
        rejected = pa.array([odd.get(number) for number in range(size)], pa.string())
    numbers = pa.array(offsets), pa.array(stamps), pa.array(kinds - 1, pa.int32())
    return pa.RecordBatch.from_arrays([*places, *numbers, *contents, _headers(pairs), rejected], schema=READ)


def _headers(headers: Sequence[Any]) -> pa.Array:
    """Makes the headers column: in their order, with duplicates and null values; empty if a record has none."""
    if not any(headers):
        return pa.ListArray.from_arrays(pa.array(np.zeros(len(headers) + 1, np.int32)), _pairs([]), type=HEADERS)
    each = [pairs or () for pairs in headers]
    ends = accumulate(map(len, each), initial=0)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), _pairs(list(chain(*each))), type=HEADERS)


def _pairs(pairs: Sequence[tuple[str, bytes | None]]) -> pa.StructArray:
    keys = pa.array([key for key, _ in pairs], pa.string())
    values = pa.array([value for _, value in pairs], pa.binary())
    return pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.value_type))


def bounded(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """Slices `batch` into batches of at most `limit` bytes of key, value and headers; a larger record goes alone.

    Each header counts _HEADER_BYTES more: one with an empty name and no value has none of its own.
    """
    if batch.nbytes <= limit:
        yield batch
        return
    ends = np.cumsum(sizes(batch, _HEADER_BYTES))
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield batch.slice(first, last - first)
        first = last


def with_range(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Adds a null `range` column to records as `to_arrow` makes them."""
    return pa.RecordBatch.from_arrays([*batch.columns, pa.nulls(len(batch), RANGE)], schema=SOURCE)


def range_rows(read: Iterable[tuple[SourceRange, int, int]]) -> pa.RecordBatch:
    """Makes the rows that state which ranges were read; `read` has (range, first offset asked for, records) of each."""
    rows = []
    for part, start, records in read:
        counts = {"start": start, "records": records, "filtered": 0}
        stated = {"topic_id": part.topic_id, "lo": part.lo, "hi": part.hi, **counts}
        rows.append({"topic": part.topic, "partition": part.partition, "offset": part.lo, "range": stated})
    return pa.RecordBatch.from_pylist(rows, schema=SOURCE)
