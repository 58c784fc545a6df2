"""Tables with partitions (`snapshot.partition.by`), in the manner of their format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace

from compactor.errors import SnapshotError
from tests.support.engine import row
from tests.support.erasure import files_with
from tests.support.tables import Tables
from tests.support.typed_snapshots import TypedConnector

PLAIN = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}
BOTH = pytest.mark.parametrize("kind", ["delta", "iceberg"])
DAY_MS = 86_400_000


class PartitionedTable:
    """The table of a connector with `snapshot.partition.by`."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        self.connector = TypedConnector(folder, PLAIN)
        self._offset = 0

    def take(self, by: str, values: Sequence[tuple[str, Any]]) -> list[tuple[Any, Any]]:
        """Folds `values` by key, takes a snapshot, and returns the names and numbers of the table's rows."""
        self.tables = Tables(self._kind, self._folder / "snapshots", **{"snapshot.partition.by": by})
        self.connector.set(PLAIN, **({} if by == "none" else {"partitions": by}))
        assert self.connector.snapshots.typed is not None
        self.connector.snapshots.typed = replace(self.connector.snapshots.typed, tables=self.tables.tables)
        rows = [
            row(0, self._offset + at, key.encode(), value and json.dumps(value).encode(), timestamp=at * DAY_MS)
            for at, (key, value) in enumerate(values)
        ]
        self._offset += len(rows)
        if rows:
            self.connector.fold(rows)
        self.connector.take()
        return sorted(((each["name"], each["n"]) for each in self.tables.rows()), key=str)


def _values(*values: tuple[str | None, int]) -> list[tuple[str, Any]]:
    return [(f"k{number}", {"name": name, "n": number}) for name, number in values]


@BOTH
def test_rows_lie_in_their_partitions(kind: str, tmp_path: Path) -> None:
    """Only files of partitions with changed rows are replaced; null has a partition of its own."""
    table = PartitionedTable(kind, tmp_path)
    first = _values(("a/b=c %é", 1), ("b", 2), (None, 3), ("007", 4))
    assert table.take("name, day(_timestamp)", first) == [("007", 4), ("a/b=c %é", 1), ("b", 2), (None, 3)]
    before = table.tables.files()
    assert len(before) == 4
    assert table.take("name, day(_timestamp)", [("k2", {"name": "b", "n": 20})]) == [
        ("007", 4), ("a/b=c %é", 1), ("b", 20), (None, 3),
    ]  # fmt: skip
    assert len(before & table.tables.files()) == 3
    if kind == "delta":
        opened = table.tables.delta()
        assert opened.metadata().partition_columns == ["name", "_timestamp_day"]
        assert len(opened.file_uris(file_pruning_predicate=[("name", "=", "007")])) == 1
        assert sorted(pl.read_delta(str(opened.table_uri)).select("n", "_timestamp_day").rows()) == [
            (1, "1970-01-01"), (3, "1970-01-03"), (4, "1970-01-04"), (20, "1970-01-01"),
        ]  # fmt: skip
    else:
        scan = table.tables.iceberg().scan(row_filter="name = 'b'")
        assert len([*scan.plan_files()]) == 1
        assert scan.to_arrow()["n"].to_pylist() == [20]
        assert [str(field.transform) for field in table.tables.iceberg().spec().fields] == ["identity", "day"]


@BOTH
def test_small_files_are_gathered_by_partition(kind: str, tmp_path: Path) -> None:
    """Many partitions with a small file each are left as they are."""
    table = PartitionedTable(kind, tmp_path)
    table.take("n", _values(*((str(number), number) for number in range(12))))
    before = table.tables.files()
    table.take("n", [("k3", None)])
    assert len(before) == 12
    assert len(before & table.tables.files()) == 11


@BOTH
@pytest.mark.parametrize("whole", [False, True])
def test_an_erasure_leaves_no_word_of_a_partition(kind: str, whole: bool, tmp_path: Path) -> None:
    """Neither folders, nor the log of Delta, name the partition of a row that is gone; commits go on."""
    table, folder = PartitionedTable(kind, tmp_path), tmp_path / "snapshots" / "c" / "t" / kind
    gone = "zz-who-wants-to"
    table.take("name", _values(("a", 1), (gone, 2), (gone, 3)))
    if whole:  # every file is replaced for a column that becomes another
        table.take("name", [("k1", {"name": "a", "n": 1, "more": 1})])
    left = table.take("name", [("k2", None), ("k3", None)])
    assert files_with(gone.encode(), folder)
    newest = table.tables.version("s", [[]])
    assert table.tables.tables.purge(newest) is None
    assert (files_with(gone.encode(), folder), left) == ([], [("a", 1)])
    assert table.take("name", [("k4", {"name": "d", "n": 4})]) == [("a", 1), ("d", 4)]
    assert table.tables.tables.purge(newest) is None


def test_partitions_of_iceberg_may_change(tmp_path: Path) -> None:
    """The table gets the other partitions with the next commit, all rows in one version."""
    table = PartitionedTable("iceberg", tmp_path)
    assert table.take("none", _values(("a", 1), ("b", 2))) == [("a", 1), ("b", 2)]
    assert table.take("name", []) == [("a", 1), ("b", 2)]
    assert len(table.tables.files()) == 2
    assert table.take("n, name", _values(("c", 3))) == [("a", 1), ("b", 2), ("c", 3)]
    assert table.take("none", []) == [("a", 1), ("b", 2), ("c", 3)]
    assert table.tables.iceberg().spec().is_unpartitioned()


def test_partitions_of_delta_stay(tmp_path: Path) -> None:
    """A table of Delta keeps its partitions: with another setting the snapshot fails, and says the way out."""
    table = PartitionedTable("delta", tmp_path)
    table.take("name", _values(("a", 1)))
    with pytest.raises(SnapshotError, match="Delta's tables keep theirs"):
        table.take("n", _values(("a", 2)))
    assert table.take("name", []) == [("a", 1), ("a", 2)]


def test_partitions_of_others_are_refused(tmp_path: Path) -> None:
    """A table that somebody else has partitioned is left alone."""
    table = PartitionedTable("iceberg", tmp_path)
    table.take("none", _values(("a", 1)))
    with table.tables.iceberg().update_spec() as update:
        update.add_identity("name")
    with pytest.raises(SnapshotError, match="which keyfold has not done"):
        table.take("none", _values(("a", 2)))
