"""Sorts the rows of a typed snapshot over all of its tasks, in bounded memory.

Tasks write sorted sections, each with what its rows are sorted by as last columns, and tell the first of each batch.
By these the worker cuts all rows into ranges. A task then reads the rows of a range from each section, and sorts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compactor.storage.base import Storage

FOLDER: Final = "data/_sorted"
"""Where the sections of a snapshot are until its data files are complete."""
_BATCH_BYTES: Final = 256 << 10
"""Arrow bytes of a section's batch, of which a range reads one too much from each section: with 128 sections as much
as it needs. Smaller ones compress worse."""
_COLUMN_BYTES: Final = 1 << 10
"""Bytes that a batch has at least for each of its columns, of which each takes some hundred bytes by itself."""
_LONGEST: Final = 4_096
"""Bytes of a text or of bytes that are compared; the next column decides then. The worker holds one for each batch."""
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class Section(NamedTuple):
    """A sorted section in the file `path`. `firsts` has of each batch what its first row is sorted by, and `sizes`."""

    path: str
    firsts: pa.Table
    sizes: Sequence[int]


class _Told(msgspec.Struct):
    """A section as a task's answer has it; `firsts` are Arrow's IPC."""

    path: str
    sizes: Sequence[int]
    firsts: bytes


# Made by the import, on one thread: see `json_types`.
_TOLD: Final = msgspec.msgpack.Decoder(_Told)


class BatchSpan(NamedTuple):
    """The batches [first, last) of the section in the file `path`."""

    path: str
    first: int
    last: int


class KeyRange(NamedTuple):
    """The rows from `start` (None: from the first) to before `end` (None: to the last), which are within `spans`."""

    number: int
    start: pa.Table | None
    end: pa.Table | None
    spans: tuple[BatchSpan, ...]
    bytes: int


def section_data(section: Section) -> bytes:
    """Encodes a section for the worker."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, section.firsts.schema, options=_COMPRESSED) as writer:
        writer.write_table(section.firsts)
    return msgspec.msgpack.encode(_Told(section.path, section.sizes, sink.getvalue().to_pybytes()))


def section_from(data: bytes) -> Section:
    """Decodes what `section_data` has encoded."""
    told = _TOLD.decode(data)
    return Section(told.path, pa.ipc.open_stream(told.firsts).read_all(), told.sizes)


def comparable(array: pa.Array) -> pa.Array:
    """Returns what an array is sorted by: of long texts and bytes only the beginning."""
    if pa.types.is_string(array.type):
        array = array.cast(pa.binary())
    if pa.types.is_binary(array.type) and (pc.max(pc.binary_length(array)).as_py() or 0) > _LONGEST:
        return pc.binary_slice(array, 0, _LONGEST)
    return array


def in_order(rows: pa.Table, keys: int) -> pa.Table:
    """Returns `rows` sorted by their last `keys` columns, nulls last."""
    return rows if not keys else rows.take(_order(_keys_of(rows, keys)))


def write_section(folder: Storage, path: str, rows: pa.Table, keys: int) -> Section:
    """Writes sorted `rows`, of which the last `keys` columns are what they are sorted by."""
    least = max(_BATCH_BYTES, _COLUMN_BYTES * rows.num_columns)
    count = max(1, rows.num_rows * least // max(1, rows.nbytes))
    starts, sizes = range(0, rows.num_rows, count), list[int]()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema, options=_COMPRESSED) as writer:
        for start in starts:
            batch = rows.slice(start, count).combine_chunks()
            sizes.append(batch.nbytes)
            writer.write_table(batch)
    folder.delete(path)  # a failed attempt's
    with folder.open_output(path) as stream:
        stream.write(sink.getvalue())
    return Section(path, _keys_of(rows, keys).take(pa.array(starts, pa.int64())), sizes)


def ranges_of(sections: Sequence[Section], most: int) -> list[KeyRange]:
    """Cuts the rows of `sections` into ranges of about `most` bytes. Pure."""
    firsts = pa.concat_tables([section.firsts for section in sections])
    order = _order(firsts).to_numpy()
    sizes = np.concatenate([section.sizes for section in sections])[order]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    of_sections = np.split(ranks, np.cumsum([len(section.sizes) for section in sections])[:-1])
    filled = np.cumsum(sizes) - sizes
    cuts = [0, *(np.flatnonzero(np.diff(filled // most)) + 1).tolist(), len(order)]
    bounds = [None, *(firsts.slice(int(order[cut]), 1) for cut in cuts[1:-1]), None]
    return [
        KeyRange(
            number,
            bounds[number],
            bounds[number + 1],
            tuple(
                span
                for section, own in zip(sections, of_sections, strict=True)
                for span in [_span(section.path, own, start, end)]
                if span.first < span.last
            ),
            int(sizes[start:end].sum()),
        )
        for number, (start, end) in enumerate(pairwise(cuts))
    ]


def read_range(folder: Storage, part: KeyRange, keys: int) -> pa.Table:
    """Reads the rows of a range from all sections, and sorts them by their last `keys` columns."""
    return in_order(
        pa.Table.from_batches([batch for span in part.spans for batch in _batches(folder, part, span, keys)]), keys
    )


def _span(path: str, ranks: Any, start: int, end: int) -> BatchSpan:
    """Returns the batches that may have rows of the range from the rank `start` to before `end`.

    The last batch that begins before `start` may have some of it.
    """
    first = max(0, int(np.searchsorted(ranks, start, side="right")) - 1)
    return BatchSpan(path, first, int(np.searchsorted(ranks, end, side="left")))


def _batches(folder: Storage, part: KeyRange, span: BatchSpan, keys: int) -> Iterator[pa.RecordBatch]:
    with folder.open_input(span.path) as source:
        reader = pa.ipc.open_file(source)
        for number in range(span.first, span.last):
            batch = reader.get_batch(number)
            is_edge = number in (span.first, span.last - 1)
            yield _within(batch, part, keys) if is_edge else batch


def _within(batch: pa.RecordBatch, part: KeyRange, keys: int) -> pa.RecordBatch:
    """Returns a copy of the rows of `batch` that lie in the range: a slice would hold all of them in memory."""
    own = _keys_of(pa.Table.from_batches([batch]), keys)
    start = 0 if part.start is None else _rows_before(own, part.start)
    end = batch.num_rows if part.end is None else _rows_before(own, part.end)
    return batch if end - start == batch.num_rows else batch.take(pa.array(range(start, end), pa.int64()))


def _rows_before(sorted_keys: pa.Table, key: pa.Table) -> int:
    """Returns how many rows come before `key`: it is the first of its equals, as Arrow's order is stable."""
    return int(pc.index(_order(pa.concat_tables([key, sorted_keys])), 0).as_py())


def _keys_of(rows: pa.Table, keys: int) -> pa.Table:
    """Returns the last `keys` columns, named by their numbers."""
    return pa.table(rows.columns[-keys:], names=[str(number) for number in range(keys)])


def _order(keys: pa.Table) -> pa.Array:
    return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
