"""Typed snapshots in Hive's folders (`snapshot.partition.by`)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from msgspec.structs import replace

from compactor.errors import SnapshotError
from compactor.snapshot import partitions
from compactor.snapshot.manifest import Typed
from compactor.snapshot.partitions import MOST_PARTITIONS, NULL, PartitionField, folder_of, parsed, values_of
from connectors.config.connector import ConnectorConfig
from connectors.errors import ConfigError
from connectors.typed.given_columns import columns_of
from connectors.typed.kinds import text_of
from tests.support.engine import row
from tests.support.snapshot_recipes import PAGE
from tests.support.typed_snapshots import Taken, TypedConnector

PLAIN = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}
ORDERS = text_of(
    columns_of(
        json.dumps(
            {
                "type": "record",
                "name": "Order",
                "fields": [
                    {"name": "country", "type": "string"},
                    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
                    {"name": "n", "type": "int"},
                    {"name": "due", "type": {"type": "int", "logicalType": "date"}},
                ],
            }
        ).encode()
    )
)


def _rows(values: Sequence[Any], first: int = 0) -> list[Any]:
    return [row(0, first + n, b"k%05d" % n, json.dumps(value).encode()) for n, value in enumerate(values)]


def _taken(folder: Path, by: str, values: Sequence[Any], **changes: Any) -> Taken:
    connector = TypedConnector(folder, PLAIN)
    settings = replace(connector.connector.settings, **changes)
    connector.set(PLAIN, given=ORDERS, partitions=by, engine=settings)
    connector.fold(_rows(values))
    return connector.take()


def _folders(taken: Taken) -> list[str]:
    return sorted({file.path.removeprefix("data/").rpartition("/")[0] for file in taken.manifest.files})


def test_each_partition_has_its_folder(tmp_path: Path) -> None:
    """Its name has the value, escaped as Hive does; files have the column too, so each reader has the same rows."""
    countries = ["DE", "007", None, "", "a/b=c %é", "DE"]
    taken = _taken(tmp_path, "country", [{"country": each, "n": n} for n, each in enumerate(countries)])
    assert _folders(taken) == ["country=", "country=007", "country=DE", f"country={NULL}", "country=a%2Fb%3Dc %25é"]
    assert isinstance(taken.manifest.typed, Typed)
    assert taken.manifest.typed.partition_by == ("country",)
    data = taken.files[0].parent.parent
    expected = sorted(enumerate(countries), key=str)
    sql = f"SELECT n, country FROM '{data}/**/*.parquet'"
    assert sorted(duckdb.execute(sql).fetchall(), key=str) == expected
    assert duckdb.execute(f"{sql} WHERE country = '007'").fetchall() == [(1, "007")]
    assert sorted(pl.read_parquet(f"{data}/**/*.parquet").select("n", "country").rows(), key=str) == expected
    table = ds.dataset(data, format="parquet", partitioning="hive").to_table(columns=["n", "country"])
    assert sorted(zip(*table.to_pydict().values(), strict=True), key=str) == expected
    frame = pd.read_parquet(data, partitioning=None)
    assert sorted(zip(frame["n"], frame["country"], strict=True), key=str) == expected


def test_the_query_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/snapshots.md: the line that reads folders is run as it stands, but for the names of its columns."""
    taken = _taken(tmp_path, "country, day(at)", [{"country": each, "n": n} for n, each in enumerate(("DE", None))])
    (query,) = re.findall(r"(?m)^    (SELECT .*)$", PAGE.read_text(encoding="utf-8"))
    (tmp_path / "snapshots" / "c").rename(tmp_path / "snapshots" / "orders")
    (tmp_path / "snapshots" / "orders" / "t").rename(tmp_path / "snapshots" / "orders" / "orders")
    monkeypatch.chdir(tmp_path)
    assert duckdb.execute(query.replace("status, total", "n, country")).fetchall() == [(0, "DE")]
    assert len(taken.files) == 2


def test_partitions_are_of_times(tmp_path: Path) -> None:
    """A day or month is a folder of its own, and rows are by key in it."""
    days = ["2026-11-27T23:59:59Z", None, "2026-11-28T00:00:00Z", "1969-12-31T23:00:00Z", "2026-11-27T00:00:00Z"]
    taken = _taken(tmp_path, "month(at), day(at)", [{"n": n, "at": each} for n, each in enumerate(days)])
    assert _folders(taken) == [
        "at_month=1969-12/at_day=1969-12-31",
        "at_month=2026-11/at_day=2026-11-27",
        "at_month=2026-11/at_day=2026-11-28",
        f"at_month={NULL}/at_day={NULL}",
    ]
    data = taken.files[0].parents[2]
    read = duckdb.execute(f"SELECT n FROM '{data}/**/*.parquet' WHERE at_day = '2026-11-27' ORDER BY n")
    assert read.fetchall() == [(0,), (4,)]


def test_partitions_of_large_snapshots_are_sorted(tmp_path: Path) -> None:
    """Sections of several tasks become files of each partition, in which keys rise."""
    values = [{"country": f"c{n * 7919 % 5}", "n": n, "at": n} for n in range(40_000)]
    taken = _taken(tmp_path, "country", values, snapshot_file_bytes=20_000)
    assert _folders(taken) == [f"country=c{number}" for number in range(5)]
    assert len(taken.files) > 5
    for number in range(5):
        read = ds.dataset([str(file) for file in taken.files if f"country=c{number}/" in str(file)]).to_table()
        assert read["_key"].to_pylist() == sorted(read["_key"].to_pylist())
        assert set(read["country"].to_pylist()) == {f"c{number}"}
    assert sorted(taken.table["n"].to_pylist()) == [*range(40_000)]


def test_every_record_has_its_partition(tmp_path: Path) -> None:
    """With snapshot.mode=append rows stay in the log's order within each folder."""
    connector = TypedConnector(tmp_path, PLAIN)
    policy = replace(connector.connector.settings.policy, cleanup_policy=("delete",))
    engine = replace(connector.connector.settings, policy=policy, snapshot_mode="append", snapshot_file_bytes=100_000)
    connector.set(PLAIN, given=ORDERS, partitions="country", engine=engine)
    connector.connector.ingest(_rows([{"country": f"c{n % 3}", "n": 40_000 - n} for n in range(40_000)]))
    connector.connector.publish()
    taken = connector.take()
    for number in range(3):
        files = sorted(str(file) for file in taken.files if f"country=c{number}/" in str(file))
        offsets = ds.dataset(files).to_table()["_offset"].to_pylist()
        assert offsets == [*range(number, 40_000, 3)]


def test_what_no_folder_can_be_named_by_is_in_rest(tmp_path: Path) -> None:
    """A text that is too long, or the word for null, fits no column; its record is whole in the folder of null."""
    values = [{"country": each} for each in ("x" * 400, NULL, "/" * 60, "A")]
    taken = _taken(tmp_path, "country", values)
    assert _folders(taken) == ["country=A", f"country={NULL}"]
    rest = [each for each in taken.table["_rest"].to_pylist() if each]
    assert sorted(rest) == sorted(json.dumps(value).encode() for value in values[:3])
    assert isinstance(taken.manifest.typed, Typed)
    assert taken.manifest.typed.unplaced == {"_rest": 3}
    assert "folder" in taken.manifest.typed.first[0].reason


def test_dates_that_python_has_not_are_in_rest(tmp_path: Path) -> None:
    """PostgreSQL's `infinity` takes no snapshot along; a day of it has a folder, as that is a number."""
    values = [{"due": 2**31 - 1}, {"due": 2_932_897}, {"due": -719_163}, {"due": 2_932_896}, {"due": -719_162}]
    taken = _taken(tmp_path, "due", values)
    assert _folders(taken) == ["due=0001-01-01", "due=9999-12-31", f"due={NULL}"]
    assert isinstance(taken.manifest.typed, Typed)
    assert taken.manifest.typed.unplaced == {"_rest": 3}
    assert "due_day=5881580-07-11" in _folders(_taken(tmp_path / "days", "day(due)", values))


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ("day(country)", "of type string"),
        ("hour(n)", "of type int32"),
        ("n", f"more than {MOST_PARTITIONS} partitions"),
    ],
)
def test_what_makes_no_partitions_fails_the_snapshot(tmp_path: Path, by: str, why: str) -> None:
    """A column of another type, and one of too many values; nothing of the snapshot stays."""
    with pytest.raises(SnapshotError, match=why):
        _taken(tmp_path, by, [{"country": "x", "n": n} for n in range(MOST_PARTITIONS + 1)])
    assert not [*(tmp_path / "snapshots" / "c" / "t").glob("*")]


def test_a_column_that_no_record_has_fails_the_snapshot(tmp_path: Path) -> None:
    """A misspelt name would have all rows in the partition of null; the error has topic, setting and nearest name."""
    connector = TypedConnector(tmp_path, PLAIN)
    connector.fold(_rows([{"Country": "A"}, {"n": 1}]))
    connector.set(PLAIN, partitions="country")
    said = "topic t can be taken by snapshot.partition.by=country: no record has a field country; did you mean Country"
    with pytest.raises(SnapshotError, match=said):
        connector.take()
    assert not [*(tmp_path / "snapshots" / "c" / "t").glob("*")]
    connector.set(PLAIN, partitions="day(nowhere)")
    with pytest.raises(SnapshotError, match=r"by=day\(nowhere\): no record has a field nowhere\."):
        connector.take()
    connector.set(PLAIN, partitions="Country")
    assert _folders(connector.take()) == ["Country=A", f"Country={NULL}"]


def test_partitions_may_change(tmp_path: Path) -> None:
    """Other partitions make another snapshot, also if no record has changed; a column that is gone is null."""
    connector = TypedConnector(tmp_path, PLAIN)
    connector.set(PLAIN, given=ORDERS, partitions="country")
    connector.fold(_rows([{"country": "A", "n": 1}]))
    assert _folders(connector.take(again=False)) == ["country=A"]
    connector.set(PLAIN, given=ORDERS, partitions="n")
    assert _folders(connector.take(again=False)) == ["n=1"]
    connector.set(PLAIN, given=text_of(pa.struct({"n": pa.int32()})), partitions="country")
    connector.fold([row(0, 1, b"k00000", b'{"n": 2}')])
    assert _folders(connector.take(again=False)) == [f"country={NULL}"]


@pytest.mark.parametrize(
    ("field", "values", "folders"),
    [
        ("a", pa.array([True, False]), ["a=true", "a=false"]),
        ("a", pa.array([-1, None], pa.int32()), ["a=-1", f"a={NULL}"]),
        ("a", pa.array([0], pa.date32()), ["a=1970-01-01"]),
        ("year(a)", pa.array([0, -1], pa.date32()), ["a_year=1970", "a_year=1969"]),
        ("hour(a)", pa.array([3_599, -1], pa.timestamp("s")), ["a_hour=1970-01-01-00", "a_hour=1969-12-31-23"]),
        ("day(a)", pa.array([10**18], pa.timestamp("us", "UTC")), ["a_day=33658-09-27"]),
    ],
)
def test_folders_are_named_by_values(field: str, values: pa.Array, folders: list[str]) -> None:
    """Times before 1970 and beyond the year 9999 have their folders as well."""
    fields = parsed(field)
    made = values_of(fields[0], pa.RecordBatch.from_arrays([values], names=["a"]))
    assert [folder_of(fields, [value]) for value in made.to_pylist()] == folders


@pytest.mark.parametrize(
    ("text", "why"),
    [("week(a)", "no week"), ("a,A", "twice"), ("_key", "no partitions by"), ("a(", "neither"), ("x" * 101, "name")],
)
def test_a_setting_that_makes_no_folders_is_refused(text: str, why: str) -> None:
    """What no column or folder can be called, and transforms that there are not."""
    with pytest.raises(ValueError, match=why):
        parsed(text)
    schema = pa.schema([("a", pa.timestamp("us")), ("a_day", pa.string())])
    with pytest.raises(SnapshotError, match="a column a_day"):
        partitions.check_columns([PartitionField("a", "day")], schema)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"snapshot.value.format": "bytes"}, "no effect with snapshot.value.format=bytes"),
        ({"snapshot.location": "none"}, "without snapshot.location"),
        ({"snapshot.metadata.columns": "_key"}, "snapshot.metadata.columns has to have"),
    ],
)
def test_partitions_without_effect_are_refused(change: dict[str, str], why: str) -> None:
    """They need typed snapshots, with the column."""
    given = {"name": "c", "connector.class": "CompactedTopic", "topics": "t", "snapshot.location": "s", **PLAIN}
    settings = {**given, "snapshot.partition.by": "day(_timestamp)", **change}
    with pytest.raises(ConfigError, match=why):
        ConnectorConfig.model_validate(settings)
