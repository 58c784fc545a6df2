"""docs/snapshots.md: each recipe is run as it stands, on a real snapshot; tests/spark has Spark's."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from tests.support.snapshot_recipes import CHOICE, recipes, run, snapshots

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
    assert set(found) == {"DuckDB", "pandas", "Polars", "Spark", "The manifest, and going on in the output topic"}


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


def test_the_manifest(resolved: str) -> None:
    """It counts what is in the files, and says where to go on by partition."""
    assert _found(resolved, "The manifest, and going on in the output topic")["starts"] == {0: 1005}


def test_the_stable_path_can_be_given_to_tools(folder: Path) -> None:
    """`current` itself, and the snapshot's own folder."""
    topic = folder / "snapshots/customers/customers"
    newest = topic / (topic / "LATEST").read_text().strip()
    assert len(pd.read_parquet(topic / "current")) == len(pd.read_parquet(newest)) == 2
    assert duckdb.execute(f"SELECT count(*) FROM '{topic}/current/*.parquet'").fetchall() == [(2,)]
