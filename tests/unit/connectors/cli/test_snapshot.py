from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compactor.snapshot.manifest import Misfits
from connectors.operations import snapshot
from connectors.operations.snapshot import SnapshotInfo
from tests.support.cli import NAME, connector_file, invoke, worker_file

TAKEN = SnapshotInfo(
    "orders", "20261121T023000Z-ab", "snapshots/orders-keeper/orders/20261121T023000Z-ab", 4_043, 123_456
)


def _snapshot(folder: Path, monkeypatch: pytest.MonkeyPatch, taken: tuple[SnapshotInfo, ...], *more: str) -> str:
    asked: list[str] = []

    def take(worker: Any, connector: Any, _: Any) -> tuple[SnapshotInfo, ...]:
        asked.append(connector.name)
        return taken

    monkeypatch.setattr(snapshot, "snapshot", take)
    result = invoke("snapshot", connector_file(folder), "--worker", worker_file(folder), *more)
    assert (result.exit_code, asked, result.stderr) == (0, [NAME], "")
    return result.stdout


def test_snapshot_shows_what_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topic, id, records, bytes and where it is."""
    line = _snapshot(tmp_path, monkeypatch, (TAKEN,)).splitlines()[1]
    assert line.split() == ["orders", TAKEN.id, "4,043", "123,456", TAKEN.path]


def test_snapshot_as_json_has_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list with an object for each topic."""
    (found,) = json.loads(_snapshot(tmp_path, monkeypatch, (TAKEN,), "--json"))
    said = {"topic": "orders", "id": TAKEN.id, "path": TAKEN.path, "records": 4_043, "bytes": 123_456}
    assert found == {**said, "other_snapshots": [], "misfits": []}


def test_snapshot_names_what_is_another_catalogs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots beside it that nothing removes are named, once for each topic."""
    beside = replace(TAKEN, other_snapshots=("20250101T000000Z-cd",))
    lines = _snapshot(tmp_path, monkeypatch, (TAKEN, beside)).splitlines()
    named = "Snapshots of orders that are another catalog's, and left as they are: 20250101T000000Z-cd"
    assert [line for line in lines if "another catalog" in line] == [named]


def test_snapshot_says_how_many_records_fit_no_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A typed table that lacks rows looks whole: how many, of how many, in which column, and why the first."""
    first = "partition 0, offset 7: total: string does not fit a column of int64."
    misfits = (Misfits("_rest", 1_202, first), Misfits("_rest_key", 1, ""))
    lines = _snapshot(tmp_path, monkeypatch, (replace(TAKEN, misfits=misfits),)).splitlines()
    assert lines[2:] == [
        f"orders: 1,202 of 4,043 values fit no column: they are whole in _rest. The first: {first}",
        "orders: 1 of 4,043 keys fits no column: it is whole in _rest_key.",
    ]


def test_nothing_to_snapshot_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No topic is published yet: a sentence for people, an empty list for programs."""
    assert "nothing to snapshot" in _snapshot(tmp_path, monkeypatch, ())
    assert json.loads(_snapshot(tmp_path, monkeypatch, (), "--json")) == []


def test_snapshot_without_a_place_says_what_to_set(tmp_path: Path) -> None:
    """No snapshot.location: exit code 3, before anything is started."""
    result = invoke("snapshot", connector_file(tmp_path), "--worker", worker_file(tmp_path))
    assert result.exit_code == 3
    assert "snapshot.location" in result.stderr
