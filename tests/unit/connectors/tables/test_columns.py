"""The columns of a table, and its rows."""

from __future__ import annotations

from time import process_time

import pyarrow as pa

from connectors.tables.columns import rows_of


def test_rows_of_many_columns_are_made_in_one_pass() -> None:
    """A record may have 5,000 fields: to look each column up by name took 30 s of the worker."""
    names = [f"c{number}" for number in range(5_000)]
    rows = pa.table({name: pa.array([1], pa.int32()) for name in names})
    wider = pa.schema([*((name, pa.int64()) for name in names), ("new", pa.string())])
    began = process_time()
    assert rows_of(rows, wider).to_pylist() == [dict.fromkeys(names, 1) | {"new": None}]
    assert process_time() - began < 3
