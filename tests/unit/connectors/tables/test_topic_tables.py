"""Tables equal the state of a topic, in either format, whoever else writes and wherever a commit is broken off."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from compactor.errors import FailpointError, SnapshotError, StoppedError
from compactor.ports import TableVersion
from compactor.storage.local import LocalStorage
from connectors.tables.table_files import TableFiles
from connectors.tables.topic_tables import TopicTables
from tests.support.deployment import ROOT
from tests.support.echo_server import echo_server
from tests.support.erasure import files_with
from tests.support.tables import SCHEMA, Disturbed, Tables, row

BOTH = pytest.mark.parametrize("kind", ["delta", "iceberg"])
DELTA = pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
"""Of rules that do not depend on the format, Iceberg's commits take too long for every run of the tests."""
AB = [row(0, "a"), row(1, "b")]


_COUNTS = """
import gc, sys
from pathlib import Path
from tests.support.tables import Tables, row
Tables(sys.argv[1], Path(sys.argv[2])).commit([row(0, "a")])
gc.collect()
print(len(gc.get_objects()))
"""


@pytest.mark.parametrize("kind", ["iceberg", pytest.param("delta", marks=pytest.mark.long)])
def test_a_collection_does_not_go_through_a_library(kind: str, tmp_path: Path) -> None:
    """It would hold all threads for it again and again, in the midst of each commit."""
    command = [sys.executable, "-c", _COUNTS, kind, str(tmp_path)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    assert int(ended.stdout.splitlines()[-1]) < 20_000


@BOTH
def test_a_table_equals_each_snapshot(kind: str, tmp_path: Path) -> None:
    """Rows that are new, changed, or gone are so in the table; what it was committed from stands in its properties."""
    tables = Tables(kind, tmp_path)
    states = [AB, [row(1, "b"), row(2, "a", 5), row(0, "z", None, 3)], [], [row(2, "a", 5)]]
    for state in states:
        tables.commit(state)
        assert tables.rows() == sorted(state, key=lambda each: (each["_partition"], each["_offset"]))
    if kind == "delta":
        noted = tables.delta().history(1)[0]
        assert tables.delta().transaction_version("keyfold/catalog/t") == 1  # the epoch
    else:
        noted, newest = tables.iceberg().properties, tables.iceberg().current_snapshot()
        assert newest is not None
        assert newest.summary is not None
        assert {name: text for name, text in noted.items() if name.startswith("keyfold.")}.items() <= {
            **newest.summary.additional_properties
        }.items()
    said = {name: noted[f"keyfold.{name}"] for name in ("connector", "catalog.id", "epoch", "topic", "snapshot.id")}
    assert said == {"connector": "c", "catalog.id": "catalog", "epoch": "1", "topic": "t", "snapshot.id": "s4"}
    assert (noted["keyfold.source.offsets"], noted["keyfold.output.offsets"]) == ('{"0": 3}', '{"0": 7}')


@DELTA
def test_only_files_with_changed_rows_are_replaced(kind: str, tmp_path: Path) -> None:
    """A file of which all rows are current stays; the rows of a replaced file that are current are written again."""
    tables = Tables(kind, tmp_path, **{"snapshot.file.bytes": 1024})
    wide = pa.schema([*SCHEMA, ("text", pa.string())])
    rows = [{**row(offset, f"k{offset}"), "text": "x" * 2_000} for offset in range(4)]
    tables.tables.commit(tables.version("first", [[each] for each in rows], wide))
    before = tables.files()
    rows[1] = {**rows[1], "_offset": 9, "n": 2}
    tables.tables.commit(tables.version("second", [[each] for each in rows], wide))
    assert len(before) == 4
    assert len(before & tables.files()) == 3
    assert [each["_offset"] for each in tables.rows()] == [0, 2, 3, 9]


class _Counted(LocalStorage):
    """A folder that notes how many of its files were open at once."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._opened: list[pa.NativeFile] = []
        self.most = 0

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        """Opens a file, and counts those that are open."""
        self._opened.append(super().open_input(path, size))
        self.most = max(self.most, sum(not file.closed for file in self._opened))
        return self._opened[-1]


def test_the_files_of_a_snapshot_are_open_one_at_a_time(tmp_path: Path) -> None:
    """With partitions there are more of them than a process may have open."""
    tables, rows = Tables("delta", tmp_path), [row(offset, f"k{offset}") for offset in range(20)]
    for name, state in (("first", rows), ("second", rows[1:])):
        version = tables.version(name, [[each] for each in state])
        folder = _Counted(str(tmp_path / "c" / "t" / name))
        tables.tables.commit(version._replace(folder=folder))
        assert folder.most == 1
        assert tables.rows() == state


@DELTA
def test_many_small_files_are_replaced_by_one(kind: str, tmp_path: Path) -> None:
    """Files do not become more and more."""
    tables, rows = Tables(kind, tmp_path), [row(0, "k0")]
    for offset in range(1, 11):
        rows.append(row(offset, f"k{offset}"))
        tables.commit(rows)
    assert tables.rows() == rows
    assert len(tables.files()) < 10


def test_files_that_are_compressed_well_are_not_small(tmp_path: Path) -> None:
    """A file is full by what its rows take in memory: else many of them would be written again with each commit."""
    tables = Tables("delta", tmp_path, **{"snapshot.file.bytes": 1 << 20})
    wide = pa.schema([*SCHEMA, ("text", pa.string())])
    rows = [{**row(offset, "k"), "text": "x" * 200} for offset in range(50_000)]
    parts = [rows[first : first + 5_000] for first in range(0, 50_000, 5_000)]
    tables.tables.commit(tables.version("first", parts, wide))
    before = tables.files()
    parts[3] = [{**parts[3][0], "_offset": 90_000}, *parts[3][1:]]
    tables.tables.commit(tables.version("second", parts, wide))
    assert len(before) == 10
    assert len(before & tables.files()) == 9


@BOTH
@pytest.mark.parametrize("step", ["table.read", "table.write", "table.commit"])
def test_a_commit_that_is_broken_off_is_made_once(
    kind: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failure at any step a second try of the snapshot leaves one commit of it, and no row twice."""
    tables = Tables(kind, tmp_path)
    tables.commit(AB)
    version = tables.version("again", [[*AB, row(2, "c")]])
    monkeypatch.setenv("KEYFOLD_FAILPOINTS", f"{step}=error")
    with pytest.raises(FailpointError):
        tables.tables.commit(version)
    monkeypatch.delenv("KEYFOLD_FAILPOINTS")
    tables.tables.commit(version)
    assert tables.commits() == ["s1", "again"]
    assert tables.rows() == [*AB, row(2, "c")]


@BOTH
@pytest.mark.parametrize("step", ["table.write", "table.commit"])
def test_the_first_commit_that_is_broken_off_is_made_once(
    kind: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of the commit that makes the table."""
    tables = Tables(kind, tmp_path)
    version = tables.version("first", [AB])
    monkeypatch.setenv("KEYFOLD_FAILPOINTS", f"{step}=error")
    with pytest.raises(FailpointError):
        tables.tables.commit(version)
    monkeypatch.delenv("KEYFOLD_FAILPOINTS")
    tables.tables.commit(version)
    assert tables.commits() == ["first"]
    assert tables.rows() == AB


@BOTH
def test_an_older_owner_commits_no_more(kind: str, tmp_path: Path) -> None:
    """Once a newer epoch has committed, an older one is refused, and the table stays as it is."""
    tables = Tables(kind, tmp_path)
    tables.commit(AB, epoch=3)
    tables.commit([row(5, "new")], epoch=4)
    with pytest.raises(SnapshotError, match="committed by the owner of epoch 4; this one has 3"):
        tables.commit(AB, epoch=3)
    assert tables.rows() == [row(5, "new")]


def _disturbed(tables: Tables, between: Callable[[], object], *, early: bool = False, **bounds: Any) -> TopicTables:
    inner = tables.tables
    calls: list[int] = []

    def once() -> None:
        calls.append(1)
        if len(calls) == 1:
            between()

    def table(version: TableVersion) -> TableFiles:
        return Disturbed(inner.table(version), once, early=early)

    return TopicTables(table, 1 << 20, 3, "disturbed", Event().is_set, **bounds)


@BOTH
def test_an_owner_that_was_taken_over_meanwhile_commits_no_more(kind: str, tmp_path: Path) -> None:
    """A newer owner's commit between reading and committing wins, also if it only adds rows or changes none."""
    for number, newer in enumerate([[*AB, row(2, "newer")], AB]):
        tables = Tables(kind, tmp_path / str(number))
        tables.commit(AB)
        late = tables.version("late", [[*AB, row(3, "late")]])
        disturbed = _disturbed(tables, partial(tables.commit, newer, epoch=2))
        with pytest.raises(SnapshotError, match="committed by the owner of epoch 2; this one has 1"):
            disturbed.commit(late)
        assert tables.rows() == newer


@DELTA
@pytest.mark.parametrize("early", [True, False])
def test_new_columns_of_an_older_owner_are_no_way_past_a_newer_one(kind: str, early: bool, tmp_path: Path) -> None:
    """In Delta columns are added by a commit before that of the rows: it too counts on the version that was read."""
    tables = Tables(kind, tmp_path)
    tables.commit([row(0, "a")], appends=True)
    more = pa.schema([*SCHEMA, ("more", pa.string())])
    late = tables.version("late", [[{**each, "more": None} for each in AB]], more, appends=True)
    disturbed = _disturbed(tables, partial(tables.commit, AB, appends=True, epoch=2), early=early)
    with pytest.raises(SnapshotError, match="committed by the owner of epoch 2; this one has 1"):
        disturbed.commit(late)
    assert [each["_offset"] for each in tables.rows()] == [0, 1]
    assert tables.commits() == ["s1", "s2"]


@BOTH
def test_two_owners_do_not_both_make_the_table(kind: str, tmp_path: Path) -> None:
    """The one that comes second sees what the first has made."""
    tables = Tables(kind, tmp_path)
    late = tables.version("late", [[row(3, "late")]])
    with pytest.raises(SnapshotError, match="epoch 2"):
        _disturbed(tables, lambda: tables.commit(AB, epoch=2)).commit(late)
    assert tables.rows() == AB


@BOTH
def test_a_commit_of_somebody_else_is_met(kind: str, tmp_path: Path) -> None:
    """What others delete or rewrite while a commit is made is seen: the table equals the state in the end."""
    tables = Tables(kind, tmp_path)
    tables.commit(AB)
    state = [*AB, row(2, "c")]
    _disturbed(tables, lambda: tables.delete("a")).commit(tables.version("next", [state]))
    assert tables.rows() == state
    tables.delete("b")
    assert tables.rows() == [row(0, "a"), row(2, "c")]
    tables.commit(state)
    assert tables.rows() == state


@BOTH
def test_columns_follow_the_snapshots(kind: str, tmp_path: Path) -> None:
    """Columns are added and widened; one that is gone stays, null; one of another type is replaced."""
    tables = Tables(kind, tmp_path)
    places = [("_partition", pa.int32()), ("_offset", pa.int64())]
    place = {"_partition": 0, "_offset": 0}
    tables.commit(
        [{"a": 1, "b": {"x": 1}, **place}],
        pa.schema([("a", pa.int8()), ("b", pa.struct([("x", pa.int32())])), *places]),
    )
    wider = pa.schema(
        [("a", pa.int64()), ("b", pa.struct([("x", pa.int64()), ("y", pa.string())])), ("c", pa.date32()), *places]
    )
    tables.commit([{"a": 1 << 40, "b": {"x": 1 << 40, "y": "y"}, "c": None, **place}], wider)
    assert tables.rows() == [{"a": 1 << 40, "b": {"x": 1 << 40, "y": "y"}, **place, "c": None}]
    tables.commit([{"a": "text", "c": None, **place}], pa.schema([("a", pa.string()), ("c", pa.date32()), *places]))
    (only,) = tables.rows()
    assert only == {"a": "text", "b": None, **place, "c": None}


@BOTH
def test_types_that_a_format_lacks_are_others(kind: str, tmp_path: Path) -> None:
    """Times of day, small integers, milliseconds and nanoseconds have a type in each format."""
    places = [("_partition", pa.int32()), ("_offset", pa.int64())]
    types = [
        ("i", pa.int8()),
        ("t", pa.time64("ns")),
        ("m", pa.timestamp("ms", "UTC")),
        ("w", pa.timestamp("ns")),
        ("l", pa.list_(pa.struct([("x", pa.time32("ms"))]))),
        ("k", pa.map_(pa.string(), pa.int16())),
        ("d", pa.decimal128(9, 2)),
    ]
    schema = pa.schema([*types, *places])
    arrays = [[1], [3_600_000_000_123], [1_000], [1_999], [[{"x": 60_000}]], [[("a", 1)]], [None], [0], [0]]
    rows = pa.table([pa.array(each, kind) for each, kind in zip(arrays, schema.types, strict=True)], schema=schema)
    tables = Tables(kind, tmp_path)
    tables.commit(rows.to_pylist(), schema)
    read = tables.delta().to_pyarrow_table() if kind == "delta" else tables.iceberg().scan().to_arrow()
    assert [str(each) for each in read.select(["i", "t", "m", "w"]).schema.types] == (
        ["int8" if kind == "delta" else "int32", "string", "timestamp[us, tz=UTC]", "timestamp[us]"]
    )
    assert read["t"][0].as_py() == "01:00:00.000000000"
    assert str(read["l"][0].as_py()[0]["x"]).startswith("00:01:00")
    assert read["k"][0].as_py() == [("a", 1)]


@BOTH
def test_rows_are_appended_once(kind: str, tmp_path: Path) -> None:
    """With `snapshot.mode=append` rows stay that retention has taken from the topic, and each comes once."""
    tables = Tables(kind, tmp_path)
    tables.commit(AB, appends=True)
    tables.commit([row(1, "b"), row(2, "c")], appends=True)
    tables.commit([row(2, "c")], appends=True)
    assert tables.rows() == [*AB, row(2, "c")]
    more = pa.schema([*SCHEMA, ("more", pa.string())])
    tables.commit([{**row(3, "d"), "more": "x"}], more, appends=True)
    assert [each["more"] for each in tables.rows()] == [None, None, None, "x"]
    other = pa.schema([("name", pa.int64()), *list(SCHEMA)[1:]])
    with pytest.raises(SnapshotError, match="column name of the table of topic t has another type now"):
        tables.commit([], other, appends=True)


@BOTH
def test_a_table_of_others_is_left_alone(kind: str, tmp_path: Path) -> None:
    """A table of another catalog or topic, or one that keyfold has not written, is refused, and stays as it is."""
    tables = Tables(kind, tmp_path)
    tables.commit(AB)
    for changes in ({"catalog_id": "other"}, {"topic": "t-", "connector": "c"}):
        if kind == "iceberg" or "catalog_id" in changes:
            named = Tables(kind, tmp_path, **({"snapshot.table.name": "c.t"} if kind == "iceberg" else {}))
            with pytest.raises(SnapshotError, match="belongs to topic t of catalog catalog"):
                named.commit([], **changes)
    assert tables.rows() == AB
    strange = Tables("delta", tmp_path / "strange")
    write_deltalake(str(tmp_path / "strange" / "c" / "t" / "delta"), pa.table({"x": [1]}))
    with pytest.raises(SnapshotError, match="has rows, and keyfold did not write them"):
        strange.commit(AB)


@BOTH
def test_old_versions_go_with_retention(kind: str, tmp_path: Path) -> None:
    """As many versions stay readable as snapshots are kept, and no file that none of them needs."""
    tables = Tables(kind, tmp_path, **{"snapshot.retention.count": 2})
    for offset in range(5):
        tables.commit([row(offset, "a")])
    folder = tmp_path / "c" / "t" / kind
    assert len([path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts]) == 2
    if kind == "delta":
        table = tables.delta()
        table.load_as_version(3)
        assert table.to_pyarrow_table()["_offset"].to_pylist() == [3]
    else:
        older, _ = tables.iceberg().snapshots()
        assert tables.iceberg().scan(snapshot_id=older.snapshot_id).to_arrow()["_offset"].to_pylist() == [3]


@BOTH
def test_an_erasure_leaves_one_version_and_no_word_of_others(kind: str, tmp_path: Path) -> None:
    """Neither rows, nor bounds in logs and manifests, have what only older versions had; commits go on."""
    tables = Tables(kind, tmp_path, **{"snapshot.retention.count": 5})
    name, folder = "zz-who-wants-to", tmp_path / "c" / "t" / kind
    tables.commit([*AB, row(2, name)])
    tables.commit([*AB, row(2, name), row(3, "c")])
    newest = tables.commit([*AB, row(3, "c")])
    assert len(files_with(name.encode(), folder)) > 1
    assert tables.tables.purge(newest) is None
    assert files_with(name.encode(), folder) == []
    assert tables.rows() == [*AB, row(3, "c")]
    tables.commit([*AB, row(4, "d")])
    assert (tables.commits()[-2:], tables.rows()) == (["s3", "s4"], [*AB, row(4, "d")])
    assert tables.tables.purge(newest) is None


@BOTH
def test_an_erasure_removes_files_of_a_commit_that_was_cut_off(kind: str, tmp_path: Path) -> None:
    """No version names them; those that another writer is about to commit stay."""
    tables = Tables(kind, tmp_path)
    newest, folder = tables.version("20260101T000000Z-00aa11", [AB]), tmp_path / "c" / "t" / kind
    tables.tables.commit(newest)
    files = tables.tables.table(newest)
    head = files.head()
    assert head is not None
    files.begin(head, head.schema, None).write(pa.Table.from_pylist([{"name": "x"}], head.schema))
    other = folder / ("data" if kind == "iceberg" else "") / "00000-0-ffffffff-ffff-4fff-8fff-ffffffffffff.parquet"
    other.write_bytes(b"another writer's")
    before = set(folder.rglob("*.parquet"))
    assert tables.tables.purge(newest) is None
    left = {path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts}
    assert (len(before), len(left), other in left, tables.rows()) == (3, 2, True, AB)


@BOTH
def test_an_erasure_leaves_what_the_table_keeps_by_its_own_rule(kind: str, tmp_path: Path) -> None:
    """Its owner has said how long older versions stay: the answer names that."""
    tables = Tables(kind, tmp_path)
    tables.commit(AB)
    newest = tables.commit([row(1, "b")])
    if kind == "delta":
        tables.delta().alter.set_table_properties({"delta.logRetentionDuration": "interval 30 days"})
    else:
        with tables.iceberg().transaction() as transaction:
            transaction.set_properties({"gc.enabled": "false"})
    assert (tables.tables.purge(newest) or "").startswith("the table sets ")
    assert tables.files()


def test_an_erasure_leaves_what_a_tag_of_iceberg_names(tmp_path: Path) -> None:
    """A version with a tag is somebody's: the answer names it."""
    tables = Tables("iceberg", tmp_path)
    tables.commit(AB)
    table = tables.iceberg()
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "audit").commit()
    newest = tables.commit([row(1, "b")])
    assert tables.tables.purge(newest) == "branches or tags hold them: audit"


@BOTH
def test_a_table_is_removed_with_all_its_files(kind: str, tmp_path: Path) -> None:
    """Once it is, nothing is left in its folder, and the next owner may make one of the same name."""
    tables, folder = Tables(kind, tmp_path), tmp_path / "c" / "t" / kind
    version = tables.commit(AB)
    assert tables.tables.owned(version) is True
    tables.tables.drop(version)
    assert (tables.tables.owned(version), folder.exists()) == (None, False)
    tables.tables.drop(version)
    tables.commit([row(2, "c")], catalog_id="another")
    assert tables.rows() == [row(2, "c")]


@BOTH
def test_a_table_of_another_catalog_is_not_removed(kind: str, tmp_path: Path) -> None:
    """Nor one that keyfold has not committed to."""
    tables = Tables(kind, tmp_path)
    version = tables.commit(AB)
    for other in (version._replace(catalog_id="other"), version._replace(epoch=9, catalog_id="other")):
        assert tables.tables.owned(other) is False
        tables.tables.drop(other)
    assert tables.rows() == AB
    strange = tmp_path / "strange"
    write_deltalake(str(strange / "c" / "t" / "delta"), pa.table({"x": [1]}))
    Tables("delta", strange).tables.drop(version)
    assert DeltaTable(str(strange / "c" / "t" / "delta")).to_pyarrow_table().to_pylist() == [{"x": 1}]


def test_a_removal_that_was_broken_off_is_gone_on_with(tmp_path: Path) -> None:
    """Iceberg's catalog may have lost the table, and Delta its log, when their files are still there."""
    for kind in ("delta", "iceberg"):
        tables, folder = Tables(kind, tmp_path / kind), tmp_path / kind / "c" / "t" / kind
        version = tables.commit(AB)
        if kind == "delta":
            shutil.rmtree(folder / "_delta_log")
        else:
            load_catalog("keyfold", type="sql", uri=f"sqlite:///{tmp_path / kind}/iceberg.db").drop_table("c.t")
        assert list(folder.rglob("*.parquet"))
        tables.tables.drop(version)
        assert not folder.exists()


def test_files_of_a_table_that_are_not_to_go_stay(tmp_path: Path) -> None:
    """With `gc.enabled=false` another table may have them too."""
    tables = Tables("iceberg", tmp_path)
    version = tables.commit(AB)
    with tables.iceberg().transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    tables.tables.drop(version)
    assert tables.tables.owned(version) is None
    assert list((tmp_path / "c" / "t" / "iceberg").rglob("*.parquet"))


def test_old_metadata_of_iceberg_goes_too(tmp_path: Path) -> None:
    """Each commit adds a file of metadata; only so many stay as the table's properties say."""
    tables = Tables("iceberg", tmp_path, **{"snapshot.retention.count": 1})
    tables.commit(AB)
    table, name = tables.iceberg(), "write.metadata.previous-versions-max"
    assert table.properties[name] == "20"
    with table.transaction() as transaction:
        transaction.set_properties({name: "2"})
    for offset in range(5):
        tables.commit([row(offset, "a")])
    assert len(list((tmp_path / "c" / "t" / "iceberg" / "metadata").glob("*.metadata.json"))) == 3
    assert tables.iceberg().properties[name] == "2"


@DELTA
def test_without_places_every_file_is_replaced(kind: str, tmp_path: Path) -> None:
    """A snapshot without `_partition` or `_offset` has a table too."""
    tables = Tables(kind, tmp_path)
    schema = pa.schema([("name", pa.string())])
    tables.commit([{"name": "a"}], schema)
    tables.commit([{"name": "b"}, {"name": "c"}], schema)
    read = tables.delta().to_pyarrow_table() if kind == "delta" else tables.iceberg().scan().to_arrow()
    assert sorted(read["name"].to_pylist()) == ["b", "c"]
    with pytest.raises(SnapshotError, match=r"Let snapshot\.metadata\.columns have both"):
        tables.commit([], schema, appends=True)


@DELTA
def test_rows_that_are_compared_in_parts_are_as_those_of_one(kind: str, tmp_path: Path) -> None:
    """Beyond the rows that are compared at once only files with changed rows are replaced, too."""
    tables = Tables(kind, tmp_path)
    few = TopicTables(tables.tables.table, 1, 3, "few", Event().is_set, rows_at_once=2)
    rows = [row(offset << 16, f"k{offset}") for offset in range(9)]
    few.commit(tables.version("first", [rows[:3], rows[3:6], rows[6:]]))
    before = tables.files()
    rows[4] = row(9 << 16, "k4")
    few.commit(tables.version("second", [rows[:3], rows[3:6], rows[6:]]))
    assert (len(before), len(before & tables.files())) == (3, 2)
    assert tables.rows() == sorted(rows, key=lambda each: each["_offset"])


@pytest.mark.long  # test_rows_that_are_compared_in_parts_are_as_those_of_one
def test_of_20_million_rows_only_the_files_with_changed_ones_are_replaced(tmp_path: Path) -> None:
    """With as many compared at once as a worker compares: half of them."""
    tables, folder, count = Tables("delta", tmp_path), tmp_path / "c" / "t", 20_000_000
    offsets = np.random.default_rng(1).permutation(count)
    for name, changed in (("first", []), ("second", range(7_000_000, 7_001_000))):
        offsets[changed] = count + np.arange(len(changed))
        version = tables.version(name, [[]] * 8)
        for number, part in enumerate(np.split(offsets, 8)):
            columns = [["k"] * len(part), np.ones(len(part), np.int32), np.zeros(len(part), np.int32), part]
            pq.write_table(
                pa.table(columns, schema=SCHEMA), folder / name / f"{number}.parquet", row_group_size=500_000
            )
        before = tables.files() if changed else set()
        tables.tables.commit(version)
    newest = tables.delta().to_pyarrow_dataset()
    assert (newest.count_rows(), newest.count_rows(filter=pc.field("_offset") >= count)) == (count, 1_000)
    assert len(before) >= 3
    assert len(before & tables.files()) == len(before) - 1


def test_rows_are_appended_in_parts_if_the_log_has_lost_their_offsets(tmp_path: Path) -> None:
    """Which rows the table has is told by their places then, however many they are."""
    tables = Tables("delta", tmp_path)
    few = TopicTables(tables.tables.table, 1 << 20, 3, "few", Event().is_set, rows_at_once=2)
    rows = [row(offset << 16, f"k{offset}") for offset in range(5)]
    few.commit(tables.version("first", [rows], appends=True))
    for entry in (tmp_path / "c" / "t" / "delta" / "_delta_log").glob("*.json"):
        said = [json.loads(line) for line in entry.read_text().splitlines()]
        for line in said:
            line.get("commitInfo", {}).pop("keyfold.snapshot.id", None)
        entry.write_text("\n".join(map(json.dumps, said)))
    more = [*rows[1:], row(5 << 16, "new")]
    few.commit(tables.version("second", [more], appends=True))
    assert tables.rows() == [*rows, more[-1]]


@contextmanager
def _silent_catalog(called: Callable[[], object]) -> Iterator[dict[str, str]]:
    """Gives the settings of a REST catalog that takes connections, calls `called`, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def serve() -> None:
            with server.accept()[0] as opened:
                opened.recv(1)
                called()
                leave.wait(60)

        leave = Event()
        pool.submit(serve)
        try:
            port = server.getsockname()[1]
            yield {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": f"http://127.0.0.1:{port}"}
        finally:
            leave.set()


def test_a_catalog_that_hangs_fails_the_snapshot(tmp_path: Path) -> None:
    """Other connectors' snapshots wait for this one, so its calls may take only so long."""
    with _silent_catalog(lambda: None) as catalog:
        tables = Tables("iceberg", tmp_path, **catalog)
        bounded = TopicTables(tables.tables.table, 1 << 20, 3, "hangs", Event().is_set, calls_s=0.5)
        with pytest.raises(SnapshotError, match=r"its catalog did not answer within 0\.5 s"):
            bounded.commit(tables.version("first", [AB]))


def test_a_column_that_stays_gives_way_to_one_of_its_path(tmp_path: Path) -> None:
    """Once records have `a.b` and later ones `b` in `a`, Iceberg would take neither table nor commit for good."""
    tables = Tables("iceberg", tmp_path)
    before = {"a.b": 1, "_partition": 0, "_offset": 0}
    after = {"a": {"b": 2}, "_partition": 0, "_offset": 1}
    tables.commit([before], pa.schema([("a.b", pa.int32()), *list(SCHEMA)[2:]]))
    tables.commit([after], pa.schema([("a", pa.struct([("b", pa.int32())])), *list(SCHEMA)[2:]]))
    assert tables.rows() == [after]


@pytest.mark.parametrize("before", [0, 470, 70_000])
def test_what_a_catalog_repeats_of_its_login_is_not_shown(before: int, tmp_path: Path) -> None:
    """The failure goes into a file that commands show, so it has no part of a secret, wherever an answer is cut."""
    (tmp_path / "token").write_text("of-a-file-7Yc2Lw")
    settings = {"token": f"${{directory:{tmp_path}:token}}", "header.Cookie": "session=of-a-cookie-4Rk9"}

    def answer(path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        sent = f"{'x' * before}{headers['Authorization'].split()[-1]} {headers['Cookie']}"
        refusal = {"error": {"message": sent, "type": "BadRequestException", "code": 400}}
        return (200, b'{"defaults": {}, "overrides": {}}') if "config" in path else (400, json.dumps(refusal).encode())

    with echo_server(answer) as url:
        catalog = {"type": "rest", "uri": url, **settings}
        tables = Tables("iceberg", tmp_path, **{f"iceberg.catalog.{name}": text for name, text in catalog.items()})
        with pytest.raises(SnapshotError) as caught:
            tables.commit(AB)
    assert "BadRequestError" in caught.value.message
    assert not [part for part in ("of-a-f", "7Yc2Lw", "of-a-c", "4Rk9") if part in caught.value.message], caught.value


def test_a_stop_ends_the_wait_for_a_catalog(tmp_path: Path) -> None:
    """A worker that is stopped does not wait for the rest of the time."""
    stop = Event()
    with _silent_catalog(stop.set) as catalog:
        tables = Tables("iceberg", tmp_path, **catalog)
        stopping = TopicTables(tables.tables.table, 1 << 20, 3, "stops", stop.is_set)
        with pytest.raises(StoppedError):
            stopping.commit(tables.version("first", [AB]))


@BOTH
def test_a_commit_that_nobody_waits_for_is_not_made(kind: str, tmp_path: Path) -> None:
    """A call that comes back after all is the last one of its commit; the next commit goes on as usual."""
    tables = Tables(kind, tmp_path)
    tables.commit(AB)
    answer, calling = Event(), list[threading.Thread]()

    def hang() -> None:
        calling.append(threading.current_thread())
        answer.wait(60)

    hanging = _disturbed(tables, hang, calls_s=0.5)
    with pytest.raises(SnapshotError, match="did not answer"):
        hanging.commit(tables.version("late", [[row(3, "late")]]))
    answer.set()
    calling[0].join()
    assert tables.commits() == ["s1"]
    tables.tables.commit(tables.version("next", [[row(4, "next")]]))
    assert tables.rows() == [row(4, "next")]


def test_a_catalog_that_does_not_answer_fails_the_snapshot(tmp_path: Path) -> None:
    """Whatever the library raises is a failed snapshot, which is tried again."""
    catalog = {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": "http://127.0.0.1:9"}
    with pytest.raises(SnapshotError, match="the table of topic t could not be committed"):
        Tables("iceberg", tmp_path, **catalog).commit(AB)
