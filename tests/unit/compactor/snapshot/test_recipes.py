"""docs/snapshots.md: each recipe is run as it stands, on a real snapshot; tests/spark has Spark's."""

from __future__ import annotations

import importlib.util
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pandas as pd
import pytest
from pyarrow.fs import FileSystem, LocalFileSystem, copy_files

from tests.support.snapshot_recipes import CHOICE, TYPED, recipes, run, snapshots, typed_snapshot
from tests.support.stores.running import RunningStore

LIVING = [("ann", "a"), ("bob", "b")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the page's snapshots stand."""
    found = tmp_path_factory.mktemp("recipes")
    snapshots(found)
    return found


@pytest.fixture(params=[0, 1], ids=["current", "LATEST"])
def resolved(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A way to find the newest snapshot, as it stands on the page."""
    monkeypatch.chdir(folder)
    return recipes()[CHOICE][request.param]


def _found(resolved: str, heading: str) -> dict[str, Any]:
    return run(resolved, *recipes()[heading])


def test_every_tool_has_its_recipe() -> None:
    """The page shows both ways to find the newest, the four tools, and what the manifest is for."""
    found = recipes()
    assert len(found.pop(CHOICE)) == 2
    going_on = "The manifest, and going on in the output topic"
    assert set(found) == {"DuckDB", "pandas", "Polars", "Spark", "In a bucket", going_on, TYPED}
    assert [code.split(maxsplit=2)[1].partition(".")[0] for code in found[TYPED]] == [
        "duckdb", "pandas", "polars", "pyarrow", "pyspark",
    ]  # fmt: skip


@pytest.mark.parametrize("at", range(4), ids=["DuckDB", "pandas", "Polars", "pyarrow"])
def test_typed_columns(at: int, tmp_path: Path) -> None:
    """Each tool reads two columns by their names; tests/spark has Spark's."""
    assert _orders(at, typed_snapshot(tmp_path)) == [("paid", Decimal("12.50")), ("new", None)]


@pytest.mark.parametrize("at", [0, 2, 3], ids=["DuckDB", "Polars", "pyarrow"])
def test_typed_columns_in_partitions(at: int, tmp_path: Path) -> None:
    """The same lines read a snapshot whose files lie in folders of partitions; what pandas has to be told is said."""
    assert sorted(_orders(at, typed_snapshot(tmp_path, "status"))) == [("new", None), ("paid", Decimal("12.50"))]


def _orders(at: int, data: str) -> list[tuple[Any, ...]]:
    orders = run(f"data = {data!r}", recipes()[TYPED][at])["orders"]
    match at:
        case 0:
            rows = orders.fetchall()
        case 1:
            rows = orders.itertuples(index=False, name=None)
        case 2:
            rows = orders.rows()
        case _:
            rows = (tuple(each.values()) for each in orders.to_pylist())
    return list(rows)


def test_duckdb(resolved: str) -> None:
    """DuckDB gives the living keys with their values as text."""
    rows = _found(resolved, "DuckDB")["customers"].fetchall()
    assert sorted(row[:2] for row in rows) == LIVING


def test_pandas(resolved: str) -> None:
    """Pandas reads the folder as it is."""
    customers = _found(resolved, "pandas")["customers"]
    assert list(zip(customers["key"].str.decode("utf-8"), customers["value"], strict=True)) == [LIVING[1], LIVING[0]]


@pytest.mark.skipif(importlib.util.find_spec("polars") is None, reason="Polars is not installed")
def test_polars(resolved: str) -> None:
    """Polars gives the living keys with their values as text."""
    customers = _found(resolved, "Polars")["customers"]
    assert sorted(zip(customers["key"], customers["value"], strict=True)) == LIVING


def test_a_bucket(folder: Path, moto: RunningStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow and DuckDB read the newest snapshot from an S3 server, whose endpoint is put into the location."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    location = "s3://my-bucket/snapshots/customers/customers"
    (recipe,) = recipes()["In a bucket"]
    httpx.put(f"{moto.url}/my-bucket").raise_for_status()
    there = f"{location}?scheme=http&region=us-east-1&endpoint_override={moto.url.partition('//')[2]}"
    store, topic = FileSystem.from_uri(there)
    source, newest = folder / "snapshots/customers/customers", _newest(folder)
    for part in ("LATEST", f"{newest}/data"):
        copy_files(
            str(source / part), f"{topic}/{part}", source_filesystem=LocalFileSystem(), destination_filesystem=store
        )
    assert recipe.count(location) == 1
    assert sorted(run(recipe.replace(location, there))["customers"].fetchall()) == LIVING


def _newest(folder: Path) -> str:
    return (folder / "snapshots/customers/customers/LATEST").read_text().strip()


def test_the_manifest(resolved: str) -> None:
    """It counts what is in the files, and says where to go on by partition."""
    assert _found(resolved, "The manifest, and going on in the output topic")["starts"] == {0: 1005}


def test_the_stable_path_can_be_given_to_tools(folder: Path) -> None:
    """`current` itself, and the snapshot's own folder."""
    topic = folder / "snapshots/customers/customers"
    newest = topic / _newest(folder)
    assert len(pd.read_parquet(topic / "current")) == len(pd.read_parquet(newest)) == 2
    assert duckdb.execute(f"SELECT count(*) FROM '{topic}/current/*.parquet'").fetchall() == [(2,)]
