"""Which record of a key is later: by its offset, or by the value of its order first (compaction.order). Pure.

Of two values the higher is later; a record without one is earlier than all that have one; equal ones go by offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

TIMESTAMP: Final = "timestamp"
HEADER: Final = "header:"
"""Followed by the name of a header, whose value is a long: 8 bytes, big-endian (KIP-280)."""

_LONG: Final = 8
"""Bytes of a header's value. One of another length is no value (KIP-280 asks for a long)."""


def columns_of(order: str) -> tuple[str, ...]:
    """Returns the columns of record.RUN that `values_of` reads."""
    return ("offset", "timestamp") if order == TIMESTAMP else ("offset", "headers")


def values_of(rows: pa.RecordBatch, order: str) -> pa.Array:
    """Returns the value of `order` of each of `rows` (`columns_of`), null if it has none.

    A tombstone that a generation begins with is of no source record, and has none: every record of the source wins.
    """
    values = rows["timestamp"] if order == TIMESTAMP else _longs(rows["headers"], order.removeprefix(HEADER))
    return pc.if_else(pc.less(rows["offset"], 0), pa.scalar(None, values.type), values)


def _longs(headers: pa.Array, name: str) -> pa.Array:
    """Returns the long in the last header `name` of each record (Kafka's `Headers.lastHeader`)."""
    pairs = pc.list_flatten(headers)
    is_named = pc.equal(pc.struct_field(pairs, 0), name)
    rows = pc.list_parent_indices(headers).filter(is_named).to_numpy().astype(np.int64)
    bytes_of = pc.struct_field(pairs, 1).filter(is_named)
    last = np.full(len(headers), -1)
    last[rows] = np.arange(len(rows))  # of several assignments to one row the last one counts
    of_rows = bytes_of.take(pa.array(last, mask=last < 0))
    is_long = pc.fill_null(pc.equal(pc.binary_length(of_rows), _LONG), fill_value=False)
    longs = np.zeros(len(headers), np.int64)
    taken = of_rows.filter(is_long).cast(pa.binary(_LONG))
    at = taken.offset * _LONG
    if len(taken):
        longs[is_long.to_numpy(zero_copy_only=False)] = np.frombuffer(
            taken.buffers()[1], ">i8", count=len(taken), offset=at
        )
    return pa.array(longs, mask=~is_long.to_numpy(zero_copy_only=False))


def is_late(
    keys: Sequence[NDArray[np.uint64]], offsets: NDArray[np.int64], values: pa.Array, kept: pa.Array
) -> NDArray[np.bool_]:
    """Returns which of some records lose: against what is kept of their key, or against one of them at a lower offset.

    `keys` tell the records' keys apart, `values` are those of their order, `kept` that of the record which is kept of
    the key. What is left has, for each key, values that never fall as offsets rise.
    """
    ranks, floors = _ranks(values, kept)
    by_key = np.lexsort((offsets, *keys))
    changes = np.zeros(len(by_key), np.bool_)
    for part in keys:
        changes[1:] |= part[by_key][1:] != part[by_key][:-1]
    # Each key begins above all values of the one before it, so that one pass gives the highest so far of each.
    first = np.cumsum(changes) * (max(ranks.max(initial=0), floors.max(initial=0)) + 1)
    highest = np.maximum.accumulate(first + np.maximum(ranks, floors)[by_key]) - first
    late = np.zeros(len(by_key), np.bool_)
    late[by_key] = ranks[by_key] < highest
    return late


def _ranks(values: pa.Array, kept: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the place of each value among all of both, from 1; 0 for null."""
    coded = pa.concat_arrays([values, kept]).dictionary_encode()
    rank = np.empty(len(coded.dictionary), np.int64)
    rank[pc.array_sort_indices(coded.dictionary).to_numpy()] = np.arange(1, len(rank) + 1)
    codes = pc.fill_null(coded.indices, -1).to_numpy()
    ranks = np.append(rank, 0)[codes]  # -1 is the last
    return ranks[: len(values)], ranks[len(values) :]
