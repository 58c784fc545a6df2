"""docs/snapshots.md: each recipe is run as it stands, on a real snapshot."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from compactor.local import LocalStorage
from compactor.policy import CompactionPolicy
from tests.conformance.reader import Shelf
from tests.support.cleaning import Kept
from tests.support.engine import row

PAGE: Final = Path(__file__).parents[2] / "docs" / "snapshots.md"
BLOCKS: Final = re.findall(
    r"^## (.+?)$|^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)


def _recipes() -> dict[str, list[str]]:
    """The page's blocks of Python by their heading."""
    found: dict[str, list[str]] = {}
    heading = ""
    for title, code in BLOCKS:
        heading = title or heading
        if code:
            found.setdefault(heading, []).append(code)
    return found


RECIPES: Final = _recipes()
RESOLVED: Final = RECIPES.pop("Which one, and for how long")


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the page's snapshot of topic `customers` stands."""
    folder = tmp_path_factory.mktemp("recipes")
    kept = Kept(spark, folder / "store" / "c", policy=CompactionPolicy())
    kept.ingest([row(0, 0, b"ann", b"old"), row(0, 1, b"bob", b"b"), row(0, 2, b"ann", b"a")])
    kept.publish()
    kept.cleaner.fold(0)
    shelf = Shelf(folder / "snapshots")
    (taken,) = shelf.take(kept)
    assert taken.records == 2
    (folder / "snapshots" / "c").rename(folder / "snapshots" / "customers")
    (folder / "snapshots/customers/t").rename(folder / "snapshots/customers/customers")
    return folder


def _pairs(found: Any) -> set[tuple[str, str]]:
    """(key, value) of whatever a recipe has made of the snapshot."""
    if hasattr(found, "fetchall"):
        return {(one[0], one[1]) for one in found.fetchall()}
    if hasattr(found, "collect") and not hasattr(found, "to_dicts"):
        return {(one["id"], one["value"]) for one in found.collect()}
    rows = found.to_dicts() if hasattr(found, "to_dicts") else found.to_dict("records")
    keys = (one["key"] for one in rows)
    texts = (key.decode() if isinstance(key, bytes) else key for key in keys)
    return set(zip(texts, (one["value"] for one in rows), strict=True))


@pytest.mark.parametrize("resolved", RESOLVED, ids=["current", "LATEST"])
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_works_as_it_stands(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str, resolved: str, spark: SparkSession
) -> None:
    """With what `current` leads to and with what LATEST names, each gives the last records of the living keys."""
    if name == "Polars" and importlib.util.find_spec("polars") is None:
        pytest.skip("Polars is not installed")
    monkeypatch.chdir(place)
    names: dict[str, Any] = {}
    for code in (resolved, *RECIPES[name]):
        exec(compile(code, f"docs/snapshots.md, {name}", "exec"), names)
    if "customers" in names:
        assert _pairs(names["customers"]) == {("ann", "a"), ("bob", "b")}
    else:
        assert names["starts"] == {0: 1003}


def test_every_tool_has_its_recipe() -> None:
    """The page shows DuckDB, pandas, Polars and Spark, and what the manifest is for."""
    assert {"DuckDB", "pandas", "Polars", "Spark", "The manifest, and going on in the output topic"} == set(RECIPES)


def test_the_stable_path_is_read_as_it_is(place: Path, spark: SparkSession) -> None:
    """`current` itself, and the snapshot's own folder, can be given to a tool."""
    import duckdb
    import pandas as pd

    topic = place / "snapshots/customers/customers"
    newest = LocalStorage(str(topic)).read("LATEST").decode().strip()
    assert len(pd.read_parquet(topic / "current")) == len(pd.read_parquet(topic / newest)) == 2
    assert spark.read.parquet(f"file://{topic}/current").count() == 2
    assert duckdb.sql(f"SELECT count(*) FROM '{topic}/current/*.parquet'").fetchall() == [(2,)]
