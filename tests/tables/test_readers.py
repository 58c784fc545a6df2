"""docs/tables.md: other engines read each table by the recipes as they stand, and every type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.support.lake.elsewhere import run_elsewhere
from tests.support.snapshot_recipes import TABLES, recipes
from tests.support.tables import Tables
from tests.unit.connectors.tables.test_table_partitions import PartitionedTable

pytestmark = pytest.mark.timeout(600)

_RECIPES: Final = recipes(TABLES).get("Reading with other engines", [])
_ADDRESS: Final = "http://127.0.0.1:8181"
_SCHEMA: Final = pa.schema(
    [
        ("status", pa.string()),
        ("total", pa.decimal128(10, 2)),
        ("i8", pa.int8()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("ms", "UTC")),
        ("local", pa.timestamp("us")),
        ("at", pa.time64("us")),
        ("list", pa.list_(pa.int32())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("struct", pa.struct([("x", pa.int16()), ("y", pa.list_(pa.struct([("z", pa.string())])))])),
        ("_key", pa.struct([("id", pa.binary()), ("n", pa.int64())])),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
    ]
)
_FULL: Final[dict[str, Any]] = {
    "status": "paid",
    "total": Decimal("12.50"),
    "i8": -128,
    "i64": 1 << 62,
    "f32": 1.5,
    "flag": True,
    "day": dt.date(1969, 12, 31),
    "moment": dt.datetime(2024, 1, 2, 3, 4, 5, 678_000, dt.UTC),
    "local": dt.datetime(1600, 1, 2, 3, 4, 5, 678_901),  # noqa: DTZ001 - without a zone
    "at": dt.time(1, 2, 3, 4),
    "list": [1, None],
    "map": [("k", 1)],
    "struct": {"x": 1, "y": [{"z": "q"}]},
    "_key": {"id": b"\x00\xff", "n": 1},
    "_partition": 0,
    "_offset": 0,
}
_EMPTY: Final = {**dict.fromkeys(_FULL), "_key": {"id": b"b", "n": 0}, "_partition": 0, "_offset": 1}


def _kind(recipe: str) -> str:
    return "rest" if _ADDRESS in recipe else "delta" if "delta" in recipe else "iceberg"


@pytest.mark.parametrize(
    "recipe", _RECIPES, ids=lambda recipe: f"{'Spark' if 'spark' in recipe else 'DuckDB'}-{_kind(recipe)}"
)
def test_a_recipe_reads_its_columns_and_every_type(recipe: str, tmp_path: Path, rest: dict[str, str]) -> None:
    """Two columns as the page says, then all of them, from the second version of a table that got a column.

    One of Iceberg has identifier fields, so that columns and fields of a struct may not be null.
    """
    kind, catalog = _kind(recipe), dict[str, str]()
    if kind == "rest":
        catalog, rest_url = dict(rest), rest["iceberg.catalog.uri"]
        catalog["snapshot.table.name"] = f"{tmp_path.name}.${{topic}}".replace("-", "_")
        recipe = recipe.replace(_ADDRESS, rest_url).replace("lake.orders.", f"lake.{tmp_path.name.replace('-', '_')}.")
    names = {"name": "orders", "topics": "orders", **catalog}
    tables = Tables("delta" if kind == "delta" else "iceberg", tmp_path / "snapshots", **names)
    of = {"connector": "orders", "topic": "orders"}
    tables.commit([{**_FULL, "i64": 1}], _SCHEMA.remove(2), **of)
    tables.commit([_FULL, _EMPTY], _SCHEMA, **of)
    two = run_elsewhere(recipe, tmp_path).to_pylist()
    assert two == [{"status": "paid", "total": Decimal("12.50")}, {"status": None, "total": None}]
    every = run_elsewhere(recipe.replace("status, total", "*").replace('"status", "total"', '"*"'), tmp_path)
    place = "_partition" if kind == "delta" else "_source_partition"
    at = "01:02:03.000004"
    wanted = [
        {place if name == "_partition" else name: row[name] for name in row} for row in ({**_FULL, "at": at}, _EMPTY)
    ]
    assert every.sort_by("_offset").to_pylist() == wanted


@pytest.mark.parametrize(
    "recipe",
    [recipe for recipe in _RECIPES if _kind(recipe) != "rest"],
    ids=lambda recipe: f"{'Spark' if 'spark' in recipe else 'DuckDB'}-{_kind(recipe)}",
)
def test_a_table_with_partitions_is_read_after_an_erasure(recipe: str, tmp_path: Path) -> None:
    """Each partition has its rows, those of null and of what folders escape too, and a key that was erased has none."""
    kept = PartitionedTable(_kind(recipe), tmp_path)
    names = ["a/b=c %é", "b", None, "007"]
    values = [(f"k{number}", {"name": name, "n": number}) for number, name in enumerate([*names, "gone"])]
    kept.take("name, day(_timestamp)", values)
    kept.take("name, day(_timestamp)", [("k4", None)])
    assert kept.tables.tables.purge(kept.tables.version("s", [[]])) is None
    for of_page, here in (
        ("orders/orders", "c/t"), ("orders.orders", "c.t"), ("namespace = 'orders'", "namespace = 'c'"),
        ("name = 'orders'", "name = 't'"), ("status, total", "name, n"), ('"status", "total"', '"name", "n"'),
    ):  # fmt: skip
        recipe = recipe.replace(of_page, here)
    rows = run_elsewhere(recipe, tmp_path).to_pylist()
    assert sorted(rows, key=lambda row: row["n"]) == [{"name": name, "n": n} for n, name in enumerate(names)]
