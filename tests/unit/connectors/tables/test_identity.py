"""Identifier fields of an Iceberg table: the columns of the key, as long as they tell each row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors.tables.columns import DELTA, ICEBERG
from tests.support.tables import Tables

PLACES = [("_partition", pa.int32()), ("_offset", pa.int64())]
STRUCT = pa.schema([("n", pa.int32()), ("_key", pa.struct({"id": pa.int64(), "region": pa.string()})), *PLACES])
BYTES = pa.schema([("n", pa.int32()), ("_key", pa.binary()), *PLACES])
IDS = {"_key.id", "_key.region"}


def _row(offset: int, key: Any, partition: int = 0) -> dict[str, Any]:
    return {"n": offset, "_key": key, "_partition": partition, "_offset": offset}


def _key(number: int, region: str | None = "eu") -> dict[str, Any]:
    return {"id": number, "region": region}


def _identity(tables: Tables) -> tuple[set[str], set[str]]:
    """Returns the identifier fields, and the columns and fields that may not be null."""
    schema = tables.iceberg().schema()
    required = {
        schema.find_column_name(number) or "" for number in schema.field_ids if schema.find_field(number).required
    }
    return set(schema.identifier_field_names()), required


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        (pa.binary(), ("k",)),
        (pa.int8(), ("k",)),
        (STRUCT.field("_key").type, ("k.id", "k.region")),
        (pa.struct({"in": pa.struct({"a": pa.string()})}), ("k.in.a",)),
        (pa.float64(), ()),
        (pa.list_(pa.int32()), ()),
        (pa.struct({"id": pa.int64(), "weight": pa.float32()}), ()),
        (pa.struct({"id": pa.int64(), "tags": pa.map_(pa.string(), pa.int8())}), ()),
        (pa.struct({"a.b": pa.int64()}), ()),
        (pa.struct({f"f{number}": pa.int64() for number in range(101)}), ()),
    ],
)
def test_a_key_tells_rows_as_a_whole_or_not_at_all(kind: pa.DataType, paths: tuple[str, ...]) -> None:
    """Iceberg takes no floats and nothing in lists and maps; a part of a key would be the same in other rows."""
    assert ICEBERG.identity("k", kind) == paths
    assert DELTA.identity("k", kind) == ()


def test_the_columns_of_the_key_are_identifier_fields(tmp_path: Path) -> None:
    """They may not be null, nor the struct that they are in; rows go on to be compared by their places."""
    tables = Tables("iceberg", tmp_path)
    rows = [_row(number, _key(number)) for number in range(3)]
    tables.commit(rows, STRUCT, has_unique_keys=True)
    assert _identity(tables) == (IDS, {*IDS, "_key"})
    files = tables.files()
    tables.commit([*rows, _row(3, _key(3))], STRUCT, has_unique_keys=True)
    assert tables.rows() == [*rows, _row(3, _key(3))]
    assert files < tables.files()


def test_a_key_that_may_be_in_several_partitions_tells_rows_with_its_partition(tmp_path: Path) -> None:
    """Compaction keeps a key once for each partition, unless there is one, or compaction.scope=topic."""
    tables = Tables("iceberg", tmp_path)
    rows = [_row(0, b"k"), _row(0, b"k", 1)]
    tables.commit(rows, BYTES)
    assert _identity(tables) == ({"_key", "_source_partition"}, {"_key", "_source_partition"})
    tables.commit(rows[1:], BYTES, has_unique_keys=True)
    assert _identity(tables) == ({"_key"}, {"_key"})
    assert tables.rows() == rows[1:]


def test_a_null_in_the_key_ends_the_promise(tmp_path: Path) -> None:
    """A key that fits no column is null: then there are no identifier fields, and there are again once it is gone."""
    tables = Tables("iceberg", tmp_path)
    whole = [_row(number, _key(number)) for number in range(3)]
    tables.commit(whole, STRUCT, has_unique_keys=True)
    for unfit in (_key(3, None), None):
        tables.commit([*whole, _row(3, unfit)], STRUCT, has_unique_keys=True)
        assert _identity(tables) == (set(), set())
        assert tables.rows() == [*whole, _row(3, unfit)]
        tables.commit(whole, STRUCT, has_unique_keys=True)
        assert _identity(tables) == (IDS, {*IDS, "_key"})
        assert tables.rows() == whole


def test_a_table_of_before_gets_them_by_an_update_of_its_schema(tmp_path: Path) -> None:
    """Its files stay, although their columns may be null: none of their rows is."""
    tables = Tables("iceberg", tmp_path)
    rows = [_row(number, b"k%d" % number) for number in range(3)]
    tables.commit(rows, BYTES, has_unique_keys=True)
    with tables.iceberg().update_schema() as update:
        update.set_identifier_fields()
        update.make_column_optional("_key")
    assert _identity(tables) == (set(), set())
    files = tables.files()
    tables.commit([*rows, _row(3, b"k3")], BYTES, has_unique_keys=True)
    assert _identity(tables) == ({"_key"}, {"_key"})
    assert files < tables.files()
    assert tables.rows() == [*rows, _row(3, b"k3")]


def test_a_key_of_another_type_is_another_column(tmp_path: Path) -> None:
    """Bytes that become columns, and a part that becomes a list: the old identifier field goes with its column."""
    tables = Tables("iceberg", tmp_path)
    tables.commit([_row(0, b"k")], BYTES, has_unique_keys=True)
    tables.commit([_row(0, _key(0))], STRUCT, has_unique_keys=True)
    assert _identity(tables) == (IDS, {*IDS, "_key"})
    lists = pa.schema([("n", pa.int32()), ("_key", pa.struct({"id": pa.list_(pa.int64())})), *PLACES])
    tables.commit([_row(0, {"id": [1]})], lists, has_unique_keys=True)
    assert _identity(tables) == (set(), set())
    assert [row["_key"]["id"] for row in tables.rows()] == [[1]]


def test_a_wider_key_stays_an_identifier_field(tmp_path: Path) -> None:
    """A type is promoted, and a field is added to the key; rows with null there end the promise."""
    tables = Tables("iceberg", tmp_path)
    small = pa.schema([("n", pa.int32()), ("_key", pa.struct({"id": pa.int32()})), *PLACES])
    tables.commit([_row(0, {"id": 1})], small, has_unique_keys=True)
    assert _identity(tables) == ({"_key.id"}, {"_key", "_key.id"})
    rows = [_row(0, _key(1)), _row(1, _key(2))]
    tables.commit(rows, STRUCT, has_unique_keys=True)
    assert _identity(tables) == (IDS, {*IDS, "_key"})
    assert tables.rows() == rows


def test_rows_that_are_only_added_have_none(tmp_path: Path) -> None:
    """With snapshot.mode=append a key is there more than once; nor are there any without the column of the key."""
    tables = Tables("iceberg", tmp_path)
    tables.commit([_row(0, b"k"), _row(1, b"k")], BYTES, has_unique_keys=True, appends=True)
    assert _identity(tables) == (set(), set())


def test_a_field_of_the_name_of_a_place_is_another_column(tmp_path: Path) -> None:
    """A record with a field `_source_partition` fails no commit: rows are told by the partition all the same."""
    tables = Tables("iceberg", tmp_path)
    schema = pa.schema([("_source_partition", pa.string()), ("_key", pa.binary()), *PLACES])
    rows = [{"_source_partition": "x", "_key": b"a", "_partition": 0, "_offset": number} for number in range(2)]
    tables.commit(rows, schema)
    files = tables.files()
    tables.commit([*rows, {**rows[0], "_offset": 2, "_key": b"c"}], schema)
    assert files < tables.files()
    assert [row["_source_partition_2"] for row in tables.rows()] == ["x"] * 3
