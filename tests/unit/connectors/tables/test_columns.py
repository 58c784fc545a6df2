"""The columns of a table, and its rows."""

from __future__ import annotations

from time import process_time

import pyarrow as pa

from connectors.tables.columns import DELTA, ICEBERG, fitting, names_in, rows_of


def test_names_that_iceberg_has_for_itself_are_others() -> None:
    """Spark refuses all columns of a table at once if one has such a name."""
    names = ["_key", "_partition", "_Pos", "_source_pos", "_source_pos_2"]
    assert names_in(ICEBERG, names) == ["_key", "_source_partition", "_source_Pos_2_2", *names[3:]]
    assert names_in(DELTA, names) == names
    assert names_in(ICEBERG, ["_Source_partition", "_partition"]) == ["_Source_partition_2", "_source_partition"]
    schema = pa.schema([("_partition", pa.int32()), ("at", pa.time64("us"))])
    assert fitting(schema, ICEBERG) == pa.schema([("_source_partition", pa.int32()), ("at", pa.string())])


def test_rows_of_many_columns_are_made_in_one_pass() -> None:
    """A record may have 5,000 fields: to look each column up by name took 30 s of the worker."""
    names = [f"c{number}" for number in range(5_000)]
    rows = pa.table({name: pa.array([1], pa.int32()) for name in names})
    wider = pa.schema([*((name, pa.int64()) for name in names), ("new", pa.string())])
    began = process_time()
    assert rows_of(rows, wider).to_pylist() == [dict.fromkeys(names, 1) | {"new": None}]
    assert process_time() - began < 3
