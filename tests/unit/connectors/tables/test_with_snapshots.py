"""Snapshots of a connector with `snapshot.table`: the table goes with them, or they fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from msgspec.structs import replace

from compactor.errors import FailpointError, SnapshotError
from connectors.tables.topic_tables import TopicTables
from tests.support.engine import row
from tests.support.tables import Tables
from tests.support.typed_snapshots import TypedConnector

PLAIN = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}


def _connector(folder: Path, tables: TopicTables) -> TypedConnector:
    connector = TypedConnector(folder, PLAIN)
    assert connector.snapshots.typed is not None
    connector.snapshots.typed = replace(connector.snapshots.typed, tables=tables)
    return connector


def _values(**values: int | None) -> list[Any]:
    return [
        row(0, offset, key.encode(), None if n is None else json.dumps({"n": n}).encode())
        for offset, (key, n) in enumerate(values.items())
    ]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_table_has_what_the_snapshot_has(kind: str, tmp_path: Path) -> None:
    """All columns and rows of a snapshot are in the table, deleted keys are not, and offsets are the manifest's."""
    tables = Tables(kind, tmp_path / "snapshots")
    connector = _connector(tmp_path, tables.tables)
    connector.fold(_values(a=1, b=2, c=3))
    connector.take()
    later = [row(0, 3, b"a", b'{"n": 10, "text": "x"}'), row(0, 4, b"b", None)]
    connector.fold(later)
    taken = connector.take()
    rows = sorted(taken.table.to_pylist(), key=lambda each: each["_offset"])
    assert [(each["_key"], each["n"], each["text"]) for each in rows] == [(b"c", 3, None), (b"a", 10, "x")]
    assert [{**each, "_headers": []} for each in tables.rows()] == [{**each, "_headers": []} for each in rows]
    noted = tables.delta().history(1)[0] if kind == "delta" else tables.iceberg().properties
    assert json.loads(noted["keyfold.source.offsets"]) == taken.manifest.source_offsets
    assert json.loads(noted["keyfold.output.offsets"]) == taken.manifest.output_offsets
    assert len(tables.commits()) == 2


@pytest.mark.parametrize(
    "step",
    ["snapshot.write", "table.read", "table.write", "table.commit", "snapshot.manifest", "snapshot.before-latest"],
)
def test_after_a_crash_the_next_snapshot_goes_on(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a snapshot is broken off, the owner that starts next has each row once."""
    tables = Tables("delta", tmp_path / "snapshots")
    connector = _connector(tmp_path, tables.tables)
    connector.fold(_values(a=1, b=2))
    connector.take()
    connector.fold([row(0, 2, b"a", b'{"n": 3}')])
    monkeypatch.setenv("KEYFOLD_FAILPOINTS", f"{step}=error")
    with pytest.raises(FailpointError):
        connector.take()
    monkeypatch.delenv("KEYFOLD_FAILPOINTS")
    connector.connector.restart()
    connector.set(PLAIN)
    assert connector.snapshots.typed is not None
    connector.snapshots.typed = replace(connector.snapshots.typed, tables=tables.tables)
    connector.fold([row(0, 3, b"c", b'{"n": 4}')])
    connector.take()
    assert [(each["_key"], each["n"]) for each in tables.rows()] == [(b"b", 2), (b"a", 3), (b"c", 4)]


def test_a_table_that_fails_is_a_failed_snapshot(tmp_path: Path) -> None:
    """Neither LATEST nor the catalog has a snapshot of which the table could not be committed; nothing of it stays."""
    tables = Tables("delta", tmp_path / "snapshots")
    place = tmp_path / "snapshots" / "c" / "t" / "delta"
    place.parent.mkdir(parents=True)
    write_deltalake(str(place), pa.table({"x": [1]}))
    connector = _connector(tmp_path, tables.tables)
    connector.fold(_values(a=1))
    with pytest.raises(SnapshotError, match="has rows, and keyfold did not write them"):
        connector.take()
    assert not connector.connector.catalog.state.snapshots
    assert [each.name for each in place.parent.iterdir()] == ["delta"]
    assert DeltaTable(str(place)).to_pyarrow_table().to_pylist() == [{"x": 1}]


def test_a_table_that_is_set_later_is_made_of_what_there_is(tmp_path: Path) -> None:
    """If nothing has changed since the newest snapshot, `snapshot.table` has another taken all the same."""
    tables = Tables("delta", tmp_path / "snapshots")
    connector = TypedConnector(tmp_path, PLAIN)
    connector.fold(_values(a=1))
    first = connector.take(again=False)
    assert connector.snapshots.typed is not None
    connector.snapshots.typed = replace(connector.snapshots.typed, tables=tables.tables)
    second = connector.take(again=False)
    third = connector.take(again=False)
    assert first.manifest != second.manifest == third.manifest
    assert [each["n"] for each in tables.rows()] == [1]
