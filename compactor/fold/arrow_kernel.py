"""The latest record of every key with Arrow: for rows that are in memory, as `fold.latest` is for files on Spark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.fold.latest_per_key import is_rejected


def last_rows(table: pa.Table, by: Sequence[str]) -> NDArray[np.int64]:
    """The rows of `table` that no later one with the same key, and the same columns `by`, follows; rising.

    A rejected record is the latest of nothing: its row is always among them.
    """
    rejected = is_rejected(table).combine_chunks().to_numpy(zero_copy_only=False)
    keyed = table if not rejected.any() else table.filter(pa.array(~rejected))
    last = np.flatnonzero(~rejected)[last_of_each(keyed, by)]
    return np.sort(np.concatenate((last, np.flatnonzero(rejected))))


def last_of_each(table: pa.Table, by: Sequence[str]) -> NDArray[np.int64]:
    """The last row of `table` of each key, told apart by the columns `by` as well; in no order."""
    names = [*(name for name in by if not _is_constant(table[name])), "key"]
    rows = pa.table({**{name: table[name] for name in names}, "row": np.arange(table.num_rows)})
    # One thread: several do not make it sooner, and beside other tasks they take the processor from them.
    return rows.group_by(names, use_threads=False).aggregate([("row", "max")])["row_max"].to_numpy()


def _is_constant(column: pa.ChunkedArray) -> bool:
    """Whether a column without nulls has one value only: to group by it would cost as much as by the key."""
    return len(column) > 0 and bool(pc.all(pc.equal(column, column[0])).as_py())
