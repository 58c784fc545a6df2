"""Tables in Iceberg's REST catalog and in Glue, whoever else commits and wherever a worker is killed."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from compactor.errors import SnapshotError
from connectors.tables.iceberg_paths import metadata_of, paths_of
from connectors.tables.topic_tables import TopicTables
from tests.support.cli import ROOT
from tests.support.tables import SCHEMA, Disturbed, Tables, row

CATALOGS = pytest.mark.parametrize("catalog", ["rest", "glue"], indirect=True)
AB = [row(0, "a"), row(1, "b")]


def _tables(folder: Path, catalog: dict[str, str]) -> Tables:
    """Returns the table of a name of its own."""
    return Tables("iceberg", folder, **{"snapshot.table.name": f"n{secrets.token_hex(4)}.t", **catalog})


@CATALOGS
def test_a_table_is_made_and_follows_the_snapshots(catalog: dict[str, str], tmp_path: Path) -> None:
    """Rows come, change and go; columns are added, widened, and replaced."""
    tables = _tables(tmp_path, catalog)
    for state in (AB, [row(1, "b"), row(2, "a", 5)], [], AB):
        tables.commit(state)
        assert tables.rows() == state
    wider = pa.schema([("name", pa.string()), ("n", pa.int64()), *list(SCHEMA)[2:], ("more", pa.date32())])
    tables.commit([{**row(3, "c"), "n": 1 << 40}], wider)
    assert tables.rows() == [{**row(3, "c"), "n": 1 << 40, "more": None}]
    tables.commit(
        [{**row(4, "d"), "n": "text"}], pa.schema([("name", pa.string()), ("n", pa.string()), *list(SCHEMA)[2:]])
    )
    assert tables.rows() == [{**row(4, "d"), "n": "text", "more": None}]


@CATALOGS
def test_identifier_fields_come_and_go(catalog: dict[str, str], tmp_path: Path) -> None:
    """The catalog takes columns of the key that may not be null, and ones that may be again."""
    tables = _tables(tmp_path, catalog)
    schema = pa.schema([*list(SCHEMA), ("_key", pa.struct([("id", pa.int64())]))])
    whole = [{**row(0, "a"), "_key": {"id": 1}}]
    for state, fields in ((whole, {"_key.id"}), ([{**row(1, "b"), "_key": None}], set[str]()), (whole, {"_key.id"})):
        tables.commit(state, schema, has_unique_keys=True)
        assert tables.iceberg().schema().identifier_field_names() == fields
        assert tables.rows() == state


@CATALOGS
def test_an_older_owner_commits_no_more(catalog: dict[str, str], tmp_path: Path) -> None:
    """The fence is in the table's properties, whichever catalog keeps it."""
    tables = _tables(tmp_path, catalog)
    tables.commit(AB, epoch=4)
    with pytest.raises(SnapshotError, match="committed by the owner of epoch 4; this one has 3"):
        tables.commit([], epoch=3)
    assert tables.rows() == AB


@CATALOGS
def test_an_owner_that_wakes_up_after_a_newer_one_is_fenced(catalog: dict[str, str], tmp_path: Path) -> None:
    """Its commit is of a version that the newer owner has replaced meanwhile: the catalog refuses it."""
    tables = _tables(tmp_path, catalog)
    tables.commit(AB)
    late = tables.version("late", [[row(9, "late")]])
    woken = _disturbed(tables, lambda: tables.commit([*AB, row(2, "c")], epoch=2))
    with pytest.raises(SnapshotError, match="epoch 2"):
        woken.commit(late)
    assert tables.rows() == [*AB, row(2, "c")]


@CATALOGS
def test_a_commit_of_somebody_else_is_met(catalog: dict[str, str], tmp_path: Path) -> None:
    """What others delete between reading and committing is seen, and comes back."""
    tables = _tables(tmp_path, catalog)
    tables.commit(AB)
    state = [*AB, row(2, "c")]
    _disturbed(tables, lambda: tables.delete("a")).commit(tables.version("next", [state]))
    assert tables.rows() == state


@CATALOGS
@pytest.mark.parametrize("step", ["table.read", "table.write", "table.commit"])
def test_a_worker_that_is_killed_leaves_one_commit(catalog: dict[str, str], step: str, tmp_path: Path) -> None:
    """After kill -9 at any step, of the first commit and of a later one, the next try leaves each row once."""
    name = {"snapshot.table.name": f"n{secrets.token_hex(4)}.t", **catalog}
    tables = Tables("iceberg", tmp_path, **name)
    for snapshot, offsets in (("first", [0, 1]), ("second", [1, 2])):
        request = {"kind": "iceberg", "folder": str(tmp_path), "settings": name}
        file = tmp_path / "request.json"
        file.write_text(json.dumps({**request, "snapshot": snapshot, "offsets": offsets}))
        command = [sys.executable, "-m", "tests.support.lake.commit_once", str(file)]
        around = {**os.environ, "KEYFOLD_FAILPOINTS": f"{step}=kill"}
        assert subprocess.run(command, env=around, cwd=ROOT, timeout=60, check=False).returncode == -signal.SIGKILL
        state = [row(offset, f"k{offset}") for offset in offsets]
        tables.tables.commit(tables.version(snapshot, [state]))
        assert tables.rows() == state
        assert tables.commits().count(snapshot) == 1


@CATALOGS
def test_old_versions_go_and_an_erasure_leaves_one(catalog: dict[str, str], tmp_path: Path) -> None:
    """Expiry and purge change the table by the catalog as well."""
    tables = _tables(tmp_path, catalog)
    for offset in range(5):
        newest = tables.commit([row(offset, "a")])
    assert len(tables.iceberg().snapshots()) == 3
    assert tables.tables.purge(newest) is None
    assert len(tables.iceberg().snapshots()) == 1
    assert tables.rows() == [row(4, "a")]


@CATALOGS
def test_a_table_is_removed_with_its_files(catalog: dict[str, str], tmp_path: Path) -> None:
    """The catalog forgets it, and no file that one of its versions named is left; another owner's stays."""
    tables = _tables(tmp_path, catalog)
    tables.commit(AB)
    version = tables.commit([row(1, "b"), row(2, "c")])
    table = tables.iceberg()
    files = paths_of(table) | metadata_of(table)
    tables.tables.drop(version._replace(catalog_id="another"))
    assert all(table.io.new_input(path).exists() for path in files)
    tables.tables.drop(version)
    assert tables.tables.owned(version) is None
    assert not [path for path in files if table.io.new_input(path).exists()]


def _disturbed(tables: Tables, between: object) -> TopicTables:
    assert callable(between)
    held, make = [between], tables.tables.table

    def once() -> None:
        if held:
            held.pop()()

    return TopicTables(lambda version: Disturbed(make(version), once), 1 << 20, 3, "s", lambda: False)
