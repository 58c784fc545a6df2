from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from compactor.clean import compaction
from compactor.clean.rewriter import Rewriter
from compactor.model.actions import PlanFold
from compactor.model.state import CatalogState, apply
from compactor.settings import CompactionPolicy
from compactor.snapshot import listing, manifest
from compactor.snapshot.manifest import SnapshotInputs, TypedInputs
from compactor.snapshot.write import write_snapshot
from compactor.storage.local import LocalStorage
from connectors.chain.spec import chain_spec
from connectors.data.schema import DATE
from connectors.placeholders import resolve
from connectors.typed.column_types import ValueTypes
from tests.support.engine import ingested, log_of, new_state, published, row, target, with_range_reports
from tests.support.snapshot_recipes import CHOICE, TYPED, recipes, run, snapshots, typed_snapshot

POLICY = CompactionPolicy(delete_retention_ms=5000)
NOW = 1_795_228_200_123  # 2026-11-21T02:30:00.123Z
EXTRA = SnapshotInputs(output_starts={0: 3, 1: 4, 2: 5}, resume_safe_ms=60_000, policy=POLICY)
NAME = "20261121T023000Z-ab12cd"

ROWS = [
    row(0, 0, b"a", b"old"),
    row(0, 1, b"b", b"1", timestamp=NOW, headers=[{"key": "h", "value": None}, {"key": "h", "value": b"\xff"}]),
    row(0, 2, b"a", b"", timestamp=2**63 - 1),
    row(1, 7, b"a", b"other", timestamp=-1),
    row(1, 8, b"gone", None),
]


@pytest.fixture
def shelf(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "snap's b%20c"))


@pytest.fixture
def folded(spark: SparkSession, storage: LocalStorage) -> CatalogState:
    ends = {0: (0, 4), 1: (0, 9), 2: (6, 6)}
    state = ingested(storage, new_state({0: 0, 1: 0, 2: 6}), [with_range_reports(ROWS, ends)])
    state = published(state, {0: 4, 1: 9})
    logs = [log_of(state, partition) for partition in (0, 1)]
    return apply(state, compaction.clean(Rewriter(spark, storage), logs, target(storage, "1-c"), POLICY, NOW))


def test_a_snapshot_is_the_live_records_in_any_tool(
    spark: SparkSession, storage: LocalStorage, shelf: LocalStorage, folded: CatalogState
) -> None:
    """DuckDB, pandas and Spark read the same live records, by partition and offset, with times as times."""
    taken = write_snapshot(spark, storage, shelf, folded, "t", NAME, NOW, EXTRA)
    written = manifest.decode(shelf.read(f"{taken.path}/_manifest.json"))
    files = [f"{shelf.location}/{taken.path}/{file.path}" for file in written.files]
    found = pd.read_parquet(f"{shelf.location}/{taken.path}")
    assert list(found["offset"]) == [1, 2, 7]
    assert list(found["value"]) == [b"1", b"", b"other"]
    frame = spark.read.parquet(*(f"file://{file}" for file in files)).orderBy("partition", "offset")
    spark_rows = [one.asDict(recursive=True) for one in frame.collect()]
    assert [bytes(one["key"]) for one in spark_rows] == [b"b", b"a", b"a"]
    assert spark_rows[0]["headers"][0] == {"key": "h", "value": None}
    assert str(found["timestamp"].iloc[0]) == "2026-11-21 02:30:00.123000+00:00"
    assert pd.isna(found["timestamp"].iloc[1])
    rows = duckdb.execute(
        'select key, partition, epoch_ms(timestamp) from read_parquet(?) order by 2, "offset"', [files]
    )
    assert rows.fetchall()[0] == (b"b", 0, NOW)


def test_a_manifest_says_where_to_go_on(
    spark: SparkSession, storage: LocalStorage, shelf: LocalStorage, folded: CatalogState
) -> None:
    """Source offsets are the vector; output offsets are of its very commit, or where the output begins."""
    taken = write_snapshot(spark, storage, shelf, folded, "t", NAME, NOW, EXTRA)
    found = json.loads(shelf.read(f"{taken.path}/_manifest.json"))
    assert taken.path == f"c/t/{NAME}"
    assert found["source_offsets"] == taken.source_offsets == {"0": 4, "1": 9, "2": 6}
    assert found["output_offsets"] == {"0": 1004, "1": 1009, "2": 5}
    assert (found["records"], found["tombstones_excluded"], taken.records) == (3, 1, 3)
    assert (found["created_at"], found["resume_safe_until"]) == ("2026-11-21T02:30:00.123Z", "2026-11-21T02:31:00.123Z")
    assert (found["output_topic"], found["output_topic_id"], found["connector"]) == ("t.compacted", "out-id", "c")
    assert found["policy"]["delete.retention.ms"] == 5000
    assert found["schema"][4] == {"name": "timestamp", "type": "timestamp[ms, tz=UTC]"}
    for file in found["files"]:
        data = shelf.read(f"{taken.path}/{file['path']}")
        assert (file["bytes"], file["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())


def test_a_snapshot_stands_where_the_base_runs_end(
    spark: SparkSession, storage: LocalStorage, shelf: LocalStorage, folded: CatalogState
) -> None:
    """What is published while it is made is no part of it; and its time runs from when sending went on."""
    ahead = ingested(storage, folded, [with_range_reports([row(0, 4, b"z", b"z")], {0: (4, 5)})])
    begun = apply(ahead, [PlanFold(topic="t", partition=0, end=5, at_ms=NOW + 3_000)])
    later = published(begun, {0: 5})
    taken = write_snapshot(spark, storage, shelf, later, "t", NAME, NOW + 10_000, EXTRA)
    written = manifest.decode(shelf.read(f"{taken.path}/_manifest.json"))
    assert (written.source_offsets, written.records) == ({"0": 4, "1": 9, "2": 6}, 3)
    assert written.output_offsets == {"0": 1004, "1": 1009, "2": 5}
    assert written.resume_safe_until == manifest.iso(NOW + 3_000 + 60_000)


def test_latest_follows_and_what_the_catalog_does_not_name_goes(
    spark: SparkSession, storage: LocalStorage, shelf: LocalStorage, folded: CatalogState
) -> None:
    """LATEST names the newest; a dropped or never completed snapshot is removed, a stranger's folder is not."""
    names = [f"2026112{day}T000000Z-aaaaaa" for day in range(3)]
    taken = [write_snapshot(spark, storage, shelf, folded, "t", name, NOW + n, EXTRA) for n, name in enumerate(names)]
    shelf.write("c/t/notes/keep.txt", b"mine")
    state = apply(folded, taken[1:])
    listing.set_latest(shelf, taken[2])
    assert shelf.read("c/t/LATEST") == f"{names[2]}\n".encode()
    drops = listing.expired(state, "t", 1)
    assert [one.id for one in drops] == [names[1]]
    before = listing.list_ids(shelf, state, "t")
    shelf.write(f"c/t/{names[0]}x/_manifest.json", b"a newer owner's, made since")
    found = listing.unreferenced(shelf, apply(state, drops), "t", before, [names[1]])
    assert found.removable == {names[0]: "the catalog does not name it", names[1]: "beyond snapshot.retention.count"}
    for name in found.removable:
        listing.delete(shelf, f"c/t/{name}")
    shelf.delete_folder(f"c/t/{names[0]}x")
    assert shelf.list("c/t") == [names[2], "LATEST", "notes"]


def test_the_recipe_for_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands in docs/snapshots.md, with both ways to find the newest; `current` itself can be given too."""
    topic = snapshots(tmp_path)
    monkeypatch.chdir(tmp_path)
    for resolved in recipes()[CHOICE]:
        found = run(resolved, *recipes()["Spark"])["customers"].collect()
        assert sorted((one["id"], one["value"]) for one in found) == [("ann", "a"), ("bob", "b")]
    assert spark.read.parquet(f"file://{topic}/current").count() == 2


def test_the_recipe_for_typed_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads the columns of a typed snapshot by name."""
    frame = run(f"data = {typed_snapshot(tmp_path)!r}", recipes()[TYPED][-1])["orders"]
    assert sorted(map(tuple, frame.collect())) == [("new", None), ("paid", Decimal("12.50"))]
    assert frame.sparkSession is spark


def test_typed_columns_are_written_by_tasks(spark: SparkSession, storage: LocalStorage, shelf: LocalStorage) -> None:
    """Both jobs run in Spark's tasks, into which all that they need is pickled; Spark reads each type."""
    values = [
        {"n": 1, "at": 20_000, "moment": 1_000, "tags": ["x", None], "by": {"k": 1.5}},
        {"n": 2, "at": None, "moment": None, "tags": None, "by": None},
    ]
    fields: list[dict[str, Any]] = [
        {"field": "n", "type": "int32", "optional": True},
        {"field": "at", "type": "int32", "name": DATE, "optional": True},
        {"field": "moment", "type": "int64", "name": "io.debezium.time.MicroTimestamp", "optional": True},
        {"field": "tags", "type": "array", "items": {"type": "string", "optional": True}, "optional": True},
        {"field": "by", "type": "map", "keys": {"type": "string"}, "values": {"type": "double"}, "optional": True},
    ]
    content = json.dumps({"type": "struct", "fields": fields})
    settings = {"value.converter": "keyfold.Json", "value.converter.schema.content": content}
    types = ValueTypes(side="value", chain=chain_spec(settings), resolve=resolve)
    rows = [row(0, offset, b"k%d" % offset, json.dumps(value).encode()) for offset, value in enumerate(values)]
    state = ingested(storage, new_state({0: 0}), [with_range_reports([*rows, row(0, 2, b"k", b"{")], {0: (0, 3)})])
    state = published(state, {0: 3})
    folded = compaction.clean(Rewriter(spark, storage), [log_of(state, 0)], target(storage, "1-c"), POLICY, NOW)
    inputs = replace(EXTRA, typed=TypedInputs(key=None, value=types, metadata=("_key",)))
    taken = write_snapshot(spark, storage, shelf, apply(state, folded), "t", NAME, NOW, inputs)
    frame = spark.read.parquet(f"file://{shelf.location}/{taken.path}/data").orderBy("_key")
    assert frame.selectExpr(
        "n", "date_format(at, 'yyyy-MM-dd')", "string(moment)", "tags", "by", "_rest"
    ).collect() == [
        (None, None, None, None, None, b"{"),
        (1, "2024-10-04", "1970-01-01 00:00:00.001", ["x", None], {"k": 1.5}, None),
        (2, None, None, None, None, None),
    ]


def test_text_is_text_for_spark(
    spark: SparkSession, storage: LocalStorage, shelf: LocalStorage, folded: CatalogState
) -> None:
    """snapshot.string.columns make columns of Spark's type string."""
    extra = replace(EXTRA, strings=frozenset({"key", "value"}))
    taken = write_snapshot(spark, storage, shelf, folded, "t", NAME, NOW, extra)
    found = spark.read.parquet(f"file://{shelf.location}/{taken.path}/data").orderBy("partition", "offset")
    assert [(one["key"], one["value"]) for one in found.collect()] == [("b", "1"), ("a", ""), ("a", "other")]
