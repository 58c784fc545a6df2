"""Finds the latest row of every key with Arrow, for rows that are in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.fold.latest_per_key import is_rejected
from compactor.fold.short_keys import LONGEST, LastRows, are_short, last_of_short
from compactor.model.key_hash import hashes_of

_FEW: Final = 4_096
"""Up to how many rows are numbered by their keys and sorted, as a plan of Arrow's has a price of its own."""

_COMPARED: Final = 262_144
"""How many rows are compared at a time."""

_SAMPLE: Final = 65_536
"""How many keys at most are counted to learn how often each comes. That takes as long as to sort twice as many rows, so
no more than one of eight is counted."""

_SORTED: Final = 4
"""Rows are sorted if they are estimated to have each key fewer times than this; else Arrow's hash table is quicker."""

_SORTED_LONG: Final = 1.2
"""The same with keys that are not short: each is hashed as an object, and two are taken out to be compared."""


def last_rows(table: pa.Table, by: Sequence[str]) -> NDArray[np.int64]:
    """Returns the indexes, rising, of the rows of `table` that no later row with the same key and columns `by` follows.

    A rejected record is the latest of nothing: its row is always among them.
    """
    rejected = is_rejected(table).combine_chunks().to_numpy(zero_copy_only=False)
    keyed = table if not rejected.any() else table.filter(pa.array(~rejected))
    last = np.flatnonzero(~rejected)[last_of_each(keyed, by)]
    return np.sort(np.concatenate((last, np.flatnonzero(rejected))))


def last_of_each(table: pa.Table, by: Sequence[str]) -> NDArray[np.int64]:
    """Returns the index of the last row of `table` for each key and columns `by`, in no order."""
    if table.num_rows <= _FEW:
        return _last_of_few(table, by)
    return last_of_many(table, by) if mostly_differ(table["key"]) else _last_of_groups(table, by)


def mostly_differ(keys: pa.ChunkedArray) -> bool:
    """Returns whether it is quicker to sort rows with these `keys`: whether each comes seldom, by those at the end.

    Of n rows with D keys, each as often as any other, about n * n / (2 * D) have the key of an earlier one, if few do.
    The end is what came last: rows that were folded before, in which each key comes once, are at the beginning.
    """
    last = keys.slice(len(keys) - min(_SAMPLE, len(keys) // 8))
    repeated = len(last) - pc.count_distinct(last, mode="all").as_py()
    longest = pc.max(pc.binary_length(keys)).as_py() or 0
    most = _SORTED if longest <= LONGEST and not keys.null_count else _SORTED_LONG
    return 2 * repeated < len(last) and 2 * repeated * len(keys) < most * len(last) ** 2


def _last_of_groups(table: pa.Table, by: Sequence[str]) -> NDArray[np.int64]:
    """Returns what `last_of_each` does, by Arrow's hash table: the quickest way if each key comes several times."""
    names = [*(name for name in by if not _is_constant(table[name])), "key"]
    rows = pa.table({**{name: table[name] for name in names}, "row": np.arange(table.num_rows)})
    # One thread: several are not faster, and they take the processor from the other tasks of the machine.
    return rows.group_by(names, use_threads=False).aggregate([("row", "max")])["row_max"].to_numpy()


def _last_of_few(table: pa.Table, by: Sequence[str]) -> NDArray[np.int64]:
    """Returns what `last_of_each` does, rising, without a plan of Arrow's, which takes longer than few rows do."""
    codes = _numbered(_codes(table["key"]), table, by)
    last = np.full(codes.max(initial=-1) + 1, -1)
    np.maximum.at(last, codes, np.arange(len(codes)))
    return np.sort(last[last >= 0])


def _numbered(codes: NDArray[np.int64], table: pa.Table, by: Sequence[str]) -> NDArray[np.int64]:
    """Returns a number for each row, the same for the same of `codes` and values of the columns `by`."""
    for name in by:
        own = _codes(table[name])
        codes = codes * (own.max(initial=0) + 1) + own  # rows ** 2 at most, as `unique` numbers them again
        codes = np.unique(codes, return_inverse=True)[1]
    return codes


def _codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Returns a number for each row of `column`, the same for the same values; null is a value."""
    values = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return values.indices.to_numpy().astype(np.int64)


def last_of_many(
    table: pa.Table, by: Sequence[str], short_keys_last: Callable[..., LastRows] = last_of_short
) -> NDArray[np.int64]:
    """Returns what `last_of_each` does for many keys that differ, in no order, by sorting.

    Short keys are hashed and compared by words (`short_keys`). Rows that this does not tell apart are few.
    """
    keys, logs = table["key"].combine_chunks(), _logs(table, by)
    if isinstance(keys, pa.ChunkedArray) or not are_short(keys):
        numbers = pa.array(np.zeros(table.num_rows, np.int32) if logs is None else logs)
        return last_of_hashed(table, by, hashes_of(table["key"], numbers))
    last, unlike = short_keys_last(keys, logs)
    if not len(unlike):
        return last
    return np.concatenate((last, unlike[_last_of_groups(table.take(pa.array(unlike)), by)]))


def _logs(table: pa.Table, by: Sequence[str]) -> NDArray[np.int32] | None:
    """Returns a number for each row, the same for the same values of the columns `by`; None if all have the same."""
    several = [name for name in by if not _is_constant(table[name])]
    if not several:
        return None
    return _numbered(_codes(table[several[0]]), table, several[1:]).astype(np.int32)


def last_of_hashed(table: pa.Table, by: Sequence[str], hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Returns what `last_of_each` does, by sorting `hashes`, which are of each row's key and columns `by`.

    Rows with the same hash are compared byte by byte; if two of them differ, Arrow's hash table answers.
    """
    order = np.argsort(hashes)
    hashes = hashes[order]
    first = np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]))
    last = np.maximum.reduceat(order, first)
    if len(last) < len(order):
        later = np.repeat(last, np.diff(first, append=len(order)))
        earlier = np.flatnonzero(later != order)
        if not all(_are_equal(table[name], order[earlier], later[earlier]) for name in (*by, "key")):
            return _last_of_groups(table, by)
    return last


def _are_equal(column: pa.ChunkedArray, rows: NDArray[np.int64], others: NDArray[np.int64]) -> bool:
    """Returns whether `column` has the same value in each of `rows` and in the row of `others` at the same place."""
    if _is_constant(column):
        return True
    values = column.combine_chunks()  # else each `take` would do it
    pieces = ((rows[at : at + _COMPARED], others[at : at + _COMPARED]) for at in range(0, len(rows), _COMPARED))
    return all(values.take(pa.array(some)).equals(values.take(pa.array(same))) for some, same in pieces)


def _is_constant(column: pa.ChunkedArray) -> bool:
    """Returns whether a column without nulls has one value only: to group by it would cost as much as by the key."""
    return len(column) > 0 and bool(pc.all(pc.equal(column, column[0])).as_py())
