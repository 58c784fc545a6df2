"""Makes Arrow batches of messages that librdkafka holds, without a Python object for each record or field."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from compactor.errors import DEFECT, IngestError
from compactor.model.record import TopicPartition
from connectors.kafka.message_queue import Messages
from connectors.source.arrow_records import Longs, PartitionSlots, batch_of


class Held(NamedTuple):
    """What was made of messages: the slot of each as delivered, the records within their ranges, and their slots."""

    delivered: Longs
    records: pa.RecordBatch | None
    slots: Longs
    # Whether any of the records has headers.
    has_headers: bool


def to_arrow(messages: Messages, lows: Longs, highs: Longs, partitions: PartitionSlots) -> Held:
    """Copies the records with an offset in [low, high) of their slot into a batch of `READ`, in their order.

    Raises IngestError for a record of a partition that is not in the split.
    """
    records = messages.records
    slots = delivered = _slots(messages, records, partitions)
    offsets = messages.offsets(records)
    keep = (offsets >= lows[slots]) & (offsets < highs[slots])
    if not keep.all():
        records, slots, offsets = records[keep], slots[keep], offsets[keep]
    if not records.size:
        return Held(delivered, None, slots, has_headers=False)
    headers, odd = messages.headers(records)
    contents = copied(messages.keys(records), messages.values(records))
    pairs = headers or [None] * len(records)
    batch = batch_of(partitions.columns(slots), offsets, messages.times(records), contents, (pairs, odd))
    return Held(delivered, batch, slots, bool(headers))


def _slots(messages: Messages, records: Longs, partitions: PartitionSlots) -> Longs:
    numbers = messages.partitions(records)
    slots = np.full(len(records), -1, np.int64)
    for topic, mask in messages.topics(records) if len(records) else []:
        where = slice(None) if mask is None else mask
        slots[where] = partitions.of_topic(topic, numbers[where])
        strange = np.flatnonzero((slots < 0) if mask is None else (slots < 0) & mask)
        if strange.size:
            tp = TopicPartition(topic, int(numbers[strange[0]]))
            offset = int(messages.offsets(records[strange[:1]])[0])
            raise IngestError(f"{tp}: a record at offset {offset} was not asked for.", DEFECT)
    return slots


def copied(keys: tuple[Longs, Longs], values: tuple[Longs, Longs]) -> tuple[pa.Array, pa.Array]:
    """Copies keys and values, each given by addresses (0: null) and sizes of its bytes, into binary arrays.

    For Arrow all memory between them is one array, of which each key, and each value, is an element that is taken. What
    lies between is never looked at, so the addresses need no order.
    """
    lacks = keys[0] == 0, values[0] == 0
    present = np.concatenate((keys[0][~lacks[0]], values[0][~lacks[1]]))
    if not present.size:
        return pa.nulls(len(keys[0]), pa.binary()), pa.nulls(len(keys[0]), pa.binary())
    base = int(present.min())
    bounds = np.zeros(4 * len(keys[0]) + 2, np.int64)
    for at, (places, sizes), lack in ((1, keys, lacks[0]), (3, values, lacks[1])):
        starts = np.where(lack, 0, places - base)
        bounds[at:-1:4], bounds[at + 1 : -1 : 4] = starts, starts + np.where(lack, 0, sizes)
    end = int(bounds.max())
    # By the last of `bounds` Arrow estimates how much memory to reserve for what is taken: not by the memory between
    # two records, which may lie terabytes apart.
    bounds[-1] = 4 * (int(keys[1][~lacks[0]].sum()) + int(values[1][~lacks[1]].sum()))
    memory = pa.foreign_buffer(base, max(1, end, int(bounds[-1])))
    buffers = [None, pa.py_buffer(bounds), memory]
    everything = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)
    return _taken(everything, 1, lacks[0]), _taken(everything, 3, lacks[1])


def _taken(everything: pa.Array, first: int, lacks: NDArray[np.bool_]) -> pa.Array:
    rows = np.arange(first, len(everything), 4)
    return everything.take(pa.array(rows, mask=lacks if lacks.any() else None)).cast(pa.binary())
