"""Encodes records of the log for the output: as arguments of librdkafka's produce().

Timestamp, key, value and headers stay as they are in the source, but for `keyfold.*` headers: those of an
upstream keyfold go, ours follow. A field that records are ordered by may be in no value that is published, so a
header has it. CreateTime 0 is `now` to librdkafka, so it goes as 1 with a header that says so.

From the second generation of a log on, its records name their generation. The tombstones that a generation begins with
have offsets below 0 in the log: they come from no source record, so a header says what they are in place of an offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, repeat
from operator import add
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.model.record import ORDER_VALUE, OWN_HEADERS
from compactor.publish.retired import RETIRED

TOPIC: Final = "keyfold.source.topic"
PARTITION: Final = "keyfold.source.partition"
OFFSET: Final = "keyfold.source.offset"
TIMESTAMP: Final = "keyfold.source.timestamp"
ORDER: Final = "keyfold.order"
GENERATION: Final = "keyfold.generation"
SYNTHETIC: Final = "keyfold.synthetic"
RESET: Final = b"reset"
"""The value of SYNTHETIC on a tombstone for a key that an earlier generation had."""
IDENTITY: Final = b"identity"
"""The value of SYNTHETIC on a tombstone for another encoding of the key of the record that follows."""

Header = tuple[str, str | bytes | None]
Row = tuple[bytes | None, bytes | None, int, list[Header]]
"""Value, key, timestamp in ms, headers."""


def output_rows(batch: pa.RecordBatch, *, source_headers: bool) -> Iterator[Row]:
    """Makes the rows of `batch`, of any partitions, as they are published."""
    kept = original_headers(batch, without=OWN_HEADERS)
    own = _own_headers(batch) if source_headers else None
    if kept is None or own is None:
        return rows(batch, own or kept or repeat([], batch.num_rows))
    return rows(batch, map(add, kept, own))


def rows_of_generation(batch: pa.RecordBatch, generation: int, *, source_headers: bool) -> Iterator[Row]:
    """Makes the rows of `batch`, of one partition by offset, as they are published in a later `generation`."""
    named = _generation(generation)
    synthetic = pc.sum(pc.less(batch["offset"], 0)).as_py() or 0
    tombstones, records = batch.slice(0, synthetic), batch.slice(synthetic)
    if synthetic:
        of_reset = _synthetic(batch, generation, RESET, source_headers=source_headers)
        yield from rows(tombstones, repeat(of_reset, synthetic))
    for value, key, timestamp, headers in output_rows(records, source_headers=source_headers):
        yield value, key, timestamp, [*headers, *named]


def rows_with_retired(
    batch: pa.RecordBatch, own: Iterable[Row], generation: int, sent: Callable[[], object], *, source_headers: bool
) -> Iterator[Row]:
    """Yields `own`, the rows of `batch`, of one partition; before each the tombstones of the keys that it retires.

    `sent` is called when such tombstones are out and their record is not.
    """
    headers = _synthetic(batch, generation, IDENTITY, source_headers=source_headers)
    for keys, row in zip(batch[RETIRED].to_pylist(), own, strict=True):
        if keys:
            yield from ((None, key, row[2], headers) for key in keys)
            sent()
        yield row


def tombstones_of_retired(batch: pa.RecordBatch, generation: int, *, source_headers: bool) -> Iterator[Row]:
    """Makes the tombstones of the keys that the rows of `batch`, of one partition, retire, without the rows."""
    headers = _synthetic(batch, generation, IDENTITY, source_headers=source_headers)
    for keys, timestamp in zip(batch[RETIRED].to_pylist(), batch["timestamp"].to_pylist(), strict=True):
        yield from ((None, key, timestamp or 1, headers) for key in keys or ())


def keys_in_order(batch: pa.RecordBatch, *, but_own: bool = False) -> pa.Array:
    """Returns the keys of what is made of `batch`, in that order: before each the keys that it retires, if any.

    `but_own`: those alone, as `tombstones_of_retired` makes them.
    """
    if RETIRED not in batch.schema.names:
        return batch["key"]
    retired = pc.fill_null(batch[RETIRED], pa.scalar([], batch[RETIRED].type)).to_pylist()
    own = batch["key"].to_pylist()
    made = (keys if but_own else [*keys, key] for keys, key in zip(retired, own, strict=True))
    return pa.array(chain.from_iterable(made), pa.binary())


def own_places(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Returns the place of the key of each row among `keys_in_order`."""
    if RETIRED not in batch.schema.names:
        return np.arange(batch.num_rows)
    before = pc.fill_null(pc.list_value_length(batch[RETIRED]), 0).to_numpy(zero_copy_only=False)
    return np.arange(batch.num_rows) + np.cumsum(before)


def _generation(generation: int) -> list[Header]:
    return [(GENERATION, str(generation).encode())] if generation > 1 else []


def _synthetic(batch: pa.RecordBatch, generation: int, kind: bytes, *, source_headers: bool) -> list[Header]:
    """Returns the headers of a tombstone that comes from no source record; `batch` is of one partition."""
    headers = [*_generation(generation), (SYNTHETIC, kind)]
    if not source_headers:
        return headers
    topic, partition = batch["topic"][0].as_py(), batch["partition"][0].as_py()
    return [(TOPIC, topic.encode()), (PARTITION, str(partition).encode()), *headers]


def rows(batch: pa.RecordBatch, headers: Iterable[list[Header]]) -> Iterator[Row]:
    """Makes the rows of `batch` with `headers`, timestamps as librdkafka can send them."""
    times = batch["timestamp"]
    made = zip(batch["value"].to_pylist(), batch["key"].to_pylist(), times.to_pylist(), headers, strict=True)
    return map(sendable, made) if pc.any(pc.equal(times, 0)).as_py() else made


def sendable(row: Row) -> Row:
    """Returns a row as librdkafka can send it: time 0 as 1, with a header that says so."""
    value, key, timestamp, headers = row
    return (value, key, 1, [*headers, (TIMESTAMP, b"0")]) if timestamp == 0 else row


def _own_headers(batch: pa.RecordBatch) -> Iterator[list[Header]]:
    """Makes the `keyfold.source.*` headers of each row, lazily: thousands of lists burden the garbage collector."""
    topics, partitions = _one_or_each(TOPIC, batch["topic"]), _one_or_each(PARTITION, batch["partition"])
    offsets = zip(repeat(OFFSET), _texts(batch["offset"]), strict=False)
    if ORDER_VALUE not in batch.schema.names or not (pc.max(pc.binary_length(batch[ORDER_VALUE])).as_py() or 0):
        return map(list, zip(topics, partitions, offsets, strict=False))
    orders = batch[ORDER_VALUE].to_pylist()
    named = zip(topics, partitions, offsets, orders, strict=False)
    return ([*own, (ORDER, value)] if value else own for *own, value in named)


def _one_or_each(name: str, column: pa.Array) -> Iterator[Header]:
    """Yields a header with each value of a column; one for all if all are equal."""
    if len(column.unique()) == 1:
        return repeat((name, _texts(column.slice(0, 1))[0]))
    return zip(repeat(name), _texts(column), strict=False)


def _texts(column: pa.Array) -> list[bytes]:
    return column.cast(pa.string()).cast(pa.binary()).to_pylist()


def original_headers(batch: pa.RecordBatch, without: str | None = None) -> Iterator[list[Header]] | None:
    """Returns the headers of each row, without names that begin with `without`; None if no row has any."""
    keys, values = headers_of(batch)
    if len(keys) == 0:
        return None
    pairs = iter(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    headers = map(list, map(islice, repeat(pairs), header_counts(batch).to_pylist()))
    if without is None or not pc.any(pc.starts_with(keys, without)).as_py():
        return headers
    return ([pair for pair in row if not pair[0].startswith(without)] for row in headers)


def headers_of(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """Returns names and values of all headers of all rows, one after the other."""
    flat = pc.list_flatten(batch["headers"])
    return pc.struct_field(flat, 0), pc.struct_field(flat, 1)


def header_counts(batch: pa.RecordBatch) -> pa.Array:
    """Counts the headers of each row."""
    return pc.fill_null(pc.list_value_length(batch["headers"]), 0)
