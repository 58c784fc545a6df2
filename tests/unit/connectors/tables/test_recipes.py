"""docs/tables.md: each recipe is run as it stands, on a real table."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.support.snapshot_recipes import TABLES, recipes, run
from tests.support.tables import Tables

_SCHEMA: Final = pa.schema(
    [("status", pa.string()), ("total", pa.decimal128(10, 2)), ("_partition", pa.int32()), ("_offset", pa.int64())]
)
_PAID: Final = {"status": "paid", "total": Decimal("12.50")}
_READ: Final[dict[str, Callable[[Any], Any]]] = {
    "Polars": lambda orders: orders.to_dicts(),
    "pandas": lambda orders: orders.to_dict("records"),
    "pyarrow": lambda orders: orders.to_pylist(),
    "DuckDB": lambda orders: [dict(zip(("status", "total"), each, strict=True)) for each in orders.fetchall()],
}


def _table(kind: str, folder: Path) -> None:
    tables = Tables(kind, folder / "snapshots", name="orders", topics="orders")
    tables.commit([{**_PAID, "_partition": 0, "_offset": 0}], _SCHEMA, connector="orders", topic="orders")


@pytest.mark.parametrize("tool", list(_READ))
def test_delta_is_read(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tool reads two columns by their names."""
    _table("delta", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert _READ[tool](run(recipes(TABLES)["Reading"][list(_READ).index(tool)])["orders"]) == [_PAID]


def test_iceberg_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One scan is read by every tool."""
    _table("iceberg", tmp_path)
    monkeypatch.chdir(tmp_path)
    names = run(recipes(TABLES)["Reading"][-1])
    scan = names["scan"]
    duck = scan.to_duckdb("orders").sql("FROM orders")
    read = {"Polars": names["orders"], "pandas": scan.to_pandas(), "pyarrow": scan.to_arrow(), "DuckDB": duck}
    assert {tool: _READ[tool](orders) for tool, orders in read.items()} == {tool: [_PAID] for tool in _READ}
