"""Which record of a key is later: by its offset, or by the value of its order first (compaction.order). Pure.

Of two values the higher is later; a record without one is earlier than all that have one; equal ones go by offset.

If the order is a field, a tombstone without it is *bare*: it has no value to have a field. It takes the value of the
record before it. That is the record at the next lower offset if that has its key: of a delete event and the tombstone
that Debezium sends after it, both are late or none is. Otherwise it is the latest of its key, so the tombstone is not
late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.model.record import ORDER_VALUE

TIMESTAMP: Final = "timestamp"
HEADER: Final = "header:"
"""Followed by the name of a header, whose value is a long: 8 bytes, big-endian (KIP-280)."""
FIELD: Final = "field:"
"""Followed by the path of a field. What reads the record has put its value into the column ORDER_VALUE."""
BARE: Final = b""
"""What that column has of a tombstone without a value."""

LONG: Final = 8
"""Bytes of a header's value. One of another length is no value (KIP-280 asks for a long)."""


def columns_of(order: str) -> tuple[str, ...]:
    """Returns the columns of record.RUN that `values_of` reads."""
    if order.startswith(FIELD):
        return ("offset", ORDER_VALUE)
    return ("offset", "timestamp") if order == TIMESTAMP else ("offset", "headers")


def values_of(rows: pa.RecordBatch, order: str) -> pa.Array:
    """Returns the value of `order` of each of `rows` (`columns_of`), null if it has none.

    What a generation begins with, below offset 0, is of no source record in it: every one of those wins.
    """
    if order.startswith(FIELD):
        own = rows[ORDER_VALUE]
        values = pc.if_else(pc.equal(own, BARE), pa.scalar(None, own.type), own)
    else:
        values = rows["timestamp"] if order == TIMESTAMP else _longs(rows["headers"], order.removeprefix(HEADER))
    return pc.if_else(pc.less(rows["offset"], 0), pa.scalar(None, values.type), values)


def are_bare(rows: pa.RecordBatch, order: str) -> NDArray[np.bool_]:
    """Returns which of `rows` (`columns_of`) are tombstones that take the value of the record before them."""
    if not order.startswith(FIELD):
        return np.zeros(rows.num_rows, np.bool_)
    is_bare = pc.fill_null(pc.equal(rows[ORDER_VALUE], BARE), fill_value=False)
    return np.asarray(is_bare.to_numpy(zero_copy_only=False), np.bool_)


def _longs(headers: pa.Array, name: str) -> pa.Array:
    """Returns the long in the last header `name` of each record (Kafka's `Headers.lastHeader`)."""
    pairs = pc.list_flatten(headers)
    is_named = pc.equal(pc.struct_field(pairs, 0), name)
    rows = pc.list_parent_indices(headers).filter(is_named).to_numpy().astype(np.int64)
    bytes_of = pc.struct_field(pairs, 1).filter(is_named)
    last = np.full(len(headers), -1)
    last[rows] = np.arange(len(rows))  # of several assignments to one row the last one counts
    of_rows = bytes_of.take(pa.array(last, mask=last < 0))
    is_long = pc.fill_null(pc.equal(pc.binary_length(of_rows), LONG), fill_value=False)
    longs = np.zeros(len(headers), np.int64)
    taken = of_rows.filter(is_long).cast(pa.binary(LONG))
    at = taken.offset * LONG
    if len(taken):
        longs[is_long.to_numpy(zero_copy_only=False)] = np.frombuffer(
            taken.buffers()[1], ">i8", count=len(taken), offset=at
        )
    return pa.array(longs, mask=~is_long.to_numpy(zero_copy_only=False))


class Ordered(NamedTuple):
    """What the order says of some records: which are `late`, and the value that each bare one takes (null: none)."""

    late: NDArray[np.bool_]
    taken: pa.Array


def ordered(
    keys: Sequence[NDArray[np.uint64]],
    offsets: NDArray[np.int64],
    values: pa.Array,
    kept: pa.Array,
    bare: NDArray[np.bool_] | None = None,
    *,
    follows_late: bool = False,
) -> Ordered:
    """Says which of some records lose: against what is kept of their key, or against one of them at a lower offset.

    `keys` tell the records' keys apart, `values` are those of their order, `kept` that of the record which is kept of
    the key. `bare` ones have no value. `follows_late`: the record before the first of them has its key, and was late.
    What is left has, for each key, values that never fall as offsets rise.
    """
    ranks, floors, sorted_values = ranks_of(values, kept)
    by_key = np.lexsort((offsets, *keys))
    is_same = np.zeros(len(by_key), np.bool_)  # whether the record before has the same key
    is_same[1:] = _are_same(keys, by_key)
    # Each key begins above all values of the one before it, so that one pass gives the highest so far of each.
    first = np.cumsum(~is_same) * (max(ranks.max(initial=0), floors.max(initial=0)) + 1)
    highest = np.empty_like(ranks)
    highest[by_key] = np.maximum.accumulate(first + np.maximum(ranks, floors)[by_key]) - first
    late = ranks < highest
    if bare is None or not bare.any():
        return Ordered(late, pa.nulls(len(late), sorted_values.type))
    late = _with_bare(keys, offsets, late, bare, follows_late=follows_late)
    takes = bare & ~late & (highest > 0)
    return Ordered(late, sorted_values.take(pa.array(np.maximum(highest - 1, 0), mask=~takes)))


def _with_bare(
    keys: Sequence[NDArray[np.uint64]],
    offsets: NDArray[np.int64],
    late: NDArray[np.bool_],
    bare: NDArray[np.bool_],
    *,
    follows_late: bool,
) -> NDArray[np.bool_]:
    """Returns `late` with what it is of `bare` records: as the record right before them, if that has their key."""
    by_offset = np.argsort(offsets)
    is_bare, is_late = bare[by_offset], late[by_offset] & ~bare[by_offset]
    follows = is_bare.copy()
    follows[1:] &= _are_same(keys, by_offset)
    follows[:1] = False
    is_late[:1] |= is_bare[:1] & follows_late
    decides = np.maximum.accumulate(np.where(follows, 0, np.arange(len(follows))))
    made = np.empty_like(late)
    made[by_offset] = is_late[decides]
    return made


def _are_same(keys: Sequence[NDArray[np.uint64]], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns which of `rows` but the first has the key of the one before it."""
    same = np.ones(max(len(rows) - 1, 0), np.bool_)
    for part in keys:
        same &= part[rows][1:] == part[rows][:-1]
    return same


def ranks_of(values: pa.Array, kept: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Array]:
    """Returns the place of each of `values`, and of `kept`, among all of both, from 1, 0 for null; and all, sorted."""
    coded = pa.concat_arrays([values, kept]).dictionary_encode()
    rank = np.empty(len(coded.dictionary), np.int64)
    by_value = pc.array_sort_indices(coded.dictionary)
    rank[by_value.to_numpy()] = np.arange(1, len(rank) + 1)
    codes = pc.fill_null(coded.indices, -1).to_numpy()
    ranks = np.append(rank, 0)[codes]  # -1 is the last
    return ranks[: len(values)], ranks[len(values) :], coded.dictionary.take(by_value)
