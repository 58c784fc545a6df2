"""An Iceberg table's columns change as pyiceberg would change them, at a cost that grows with their number alone."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from connectors.tables.iceberg_columns import evolve, unused_schemas
from tests.support.tables import Tables, row

I32, I64, TEXT = pa.int32(), pa.int64(), pa.string()
OLD = pa.schema(
    [
        ("n", I32),
        ("s", pa.struct([("a", I32), ("b", TEXT)])),
        ("l", pa.list_(pa.field("element", pa.struct([("a", I32)])))),
        ("m", pa.map_(TEXT, pa.struct([("a", pa.float32())]))),
        ("d", pa.decimal128(5, 2)),
    ]
)
NEW = pa.schema(
    [
        ("n", I64),
        ("s", pa.struct([("a", I64), ("b", TEXT), ("c", pa.struct([("x", TEXT)]))])),
        ("l", pa.list_(pa.field("element", pa.struct([("a", I64), ("b", pa.list_(TEXT))])))),
        ("m", pa.map_(TEXT, pa.struct([("a", pa.float64()), ("b", TEXT)]))),
        ("d", pa.decimal128(9, 2)),
        ("new.column", TEXT),
        ("t", pa.timestamp("us", "UTC")),
    ]
)


def made(folder: Path, schema: pa.Schema) -> Table:
    """Makes a table without rows."""
    catalog = load_catalog("c", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("c")
    return catalog.create_table(("c", "t"), schema)


def test_columns_change_as_pyiceberg_changes_them(tmp_path: Path) -> None:
    """New ones, wider types, and both within structs, lists and maps, with the same numbers."""
    schemas = []
    for name in ("ours", "its"):
        (tmp_path / name).mkdir()
        table = made(tmp_path / name, OLD)
        with table.update_schema() as update:
            if name == "ours":
                evolve(update, OLD, NEW)
            else:
                update.union_by_name(NEW)
        schemas.append(table.schema().as_struct())
    assert str(schemas[0]) == str(schemas[1])


def test_thousands_of_columns_change_at_once(tmp_path: Path) -> None:
    """2,000 of them took 4 s of the worker's processor, and 5,000 longer than a commit may take."""
    old = pa.schema([(f"c{number}", I32) for number in range(2_000)])
    new = pa.schema([*((name, I64) for name in old.names), *((f"d{number}", TEXT) for number in range(2_000))])
    table = made(tmp_path, old)
    with table.update_schema() as update:
        began = time.thread_time()
        evolve(update, old, new)
        assert time.thread_time() - began < 2
    assert len(table.schema().fields) == 4_000


def test_schemas_that_no_version_needs_go(tmp_path: Path) -> None:
    """Each column that comes would else add all columns to the metadata, which every commit reads."""
    tables = Tables("iceberg", tmp_path, **{"snapshot.retention.count": 2})
    for number in range(4):
        schema = pa.schema([("_partition", I32), ("_offset", I64), ("n", I32), ("name", TEXT)])
        tables.commit([row(number, "a")], pa.schema([*schema, *((f"c{at}", TEXT) for at in range(number))]))
    table = tables.iceberg()
    removed = unused_schemas(table, 8)
    assert removed is not None
    assert removed.schema_ids == [0, 1]
    assert unused_schemas(table, 9) is None


@pytest.mark.long
def test_a_table_of_many_columns_keeps_its_metadata_small(tmp_path: Path) -> None:
    """Its versions and their rows stay."""
    tables = Tables("iceberg", tmp_path, **{"snapshot.retention.count": 1})
    for number in range(5):
        wide = [(f"c{at}", TEXT) for at in range(2_000 + number)]
        schema = pa.schema([("_partition", I32), ("_offset", I64), ("n", I32), ("name", TEXT), *wide])
        tables.commit([row(number, "a")], schema)
    assert len(tables.iceberg().schemas()) <= 3
    assert [each["_offset"] for each in tables.rows()] == [4]
