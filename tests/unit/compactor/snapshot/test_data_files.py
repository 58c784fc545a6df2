"""What a snapshot's files hold, read by pandas and DuckDB; in tests/spark Spark writes and reads them."""

from __future__ import annotations

import random
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, cast

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from compactor.errors import SnapshotError
from compactor.snapshot import listing, location, manifest
from compactor.snapshot.manifest import SnapshotInputs
from compactor.snapshot.snapshots import Snapshots
from compactor.snapshot.write import write_snapshot
from compactor.storage.local import LocalStorage
from compactor.turns import READERS
from tests.support.brokerless import BrokerlessConnector
from tests.support.engine import Row, row
from tests.support.local_spark import LocalSpark
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.storage import MemoryStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = 1_795_228_200_123
NAME = "20261121T023000Z-ab12cd"


def _kept(folder: Path, rows: list[Row], partitions: int = 1) -> BrokerlessConnector:
    """A connector whose records are folded and published."""
    connector = BrokerlessConnector(cast("SparkSession", LocalSpark()), folder / "store", partitions=partitions)
    connector.ingest(rows)
    connector.publish()
    connector.cleaner.clean(0)
    return connector


def _taken(connector: BrokerlessConnector, shelf: LocalStorage, *strings: str) -> str:
    """A snapshot of topic t, whose columns `strings` are text; its folder."""
    inputs = SnapshotInputs(
        output_starts={0: 0}, resume_safe_ms=None, policy=connector.settings.policy, strings=frozenset(strings)
    )
    state = connector.catalog.state
    return write_snapshot(connector.spark, connector.storage, shelf, state, "t", NAME, NOW, inputs).path


@pytest.fixture
def shelf(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "shelf"))


@pytest.mark.parametrize(("reads", "tasks"), [(False, 2), (True, 1)], ids=["alone", "beside readers"])
def test_a_snapshot_leaves_a_task_of_sparks_to_who_reads(
    tmp_path: Path, shelf: LocalStorage, reads: bool, tasks: int
) -> None:
    """It copies for long, and Spark takes no task away from a job."""
    chance = random.Random(0)
    rows = [row(partition, 0, b"k", chance.randbytes(9 << 20)) for partition in range(2)]
    connector = _kept(tmp_path, rows, partitions=2)
    connector.spark = cast("SparkSession", spark := LocalSpark(cores=2))
    with READERS.reading() if reads else nullcontext():
        _taken(connector, shelf)
    assert spark.tasks == [tasks]


def test_a_snapshots_folder_can_be_read_as_it_is(tmp_path: Path, shelf: LocalStorage) -> None:
    """What is beside the data begins with an underscore, which readers skip."""
    connector = _kept(tmp_path, [row(0, 0, b"a", b"1"), row(0, 1, b"b", b"2")])
    found = pd.read_parquet(f"{shelf.location}/{_taken(connector, shelf)}")
    assert list(found["value"]) == [b"1", b"2"]


def test_data_files_have_no_encoding_that_old_readers_lack(tmp_path: Path, shelf: LocalStorage) -> None:
    """Runs have offsets and lengths as differences; of snapshots the reader is not ours."""
    connector = _kept(tmp_path, [row(0, 0, b"a", b"1"), row(0, 1, b"b", b"2")])
    (file,) = Path(shelf.location, _taken(connector, shelf)).rglob("*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    encodings = {name for at in range(group.num_columns) for name in group.column(at).encodings}
    assert encodings <= {"PLAIN", "RLE", "RLE_DICTIONARY"}


def test_a_manifest_and_a_mark_say_whose_a_snapshot_is(tmp_path: Path, shelf: LocalStorage) -> None:
    """Both have the id of the catalog."""
    connector = _kept(tmp_path, [row(0, 0, b"a", b"1")])
    path = _taken(connector, shelf)
    catalog_id = connector.catalog.state.catalog_id
    assert manifest.read(shelf, path).catalog_id == location.catalog_of(shelf, path) == catalog_id


@pytest.mark.parametrize("strings", [("key",), ("value",), ("key", "value")])
def test_key_and_value_are_text_where_it_is_asked_for(
    tmp_path: Path, shelf: LocalStorage, strings: tuple[str, ...]
) -> None:
    """Tools read them as text without decoding, and the manifest's schema says so; other columns stay as they are."""
    connector = _kept(tmp_path, [row(0, 0, "ä".encode(), b""), row(0, 1, b"b", "ß".encode()), row(0, 2, b"c", None)])
    path = _taken(connector, shelf, *strings)
    found = pd.read_parquet(f"{shelf.location}/{path}")
    text = {"key": ["ä", "b"], "value": ["", "ß"]}
    for name, texts in text.items():
        assert list(found[name]) == (texts if name in strings else [one.encode() for one in texts])
    types = {one.name: one.type for one in manifest.read(shelf, path).schema}
    assert {name for name, kind in types.items() if kind == "string"} == set(strings)
    assert types["partition"] == "int32"


@pytest.mark.parametrize("at", [0, 3, 9_999])
@pytest.mark.parametrize("column", ["key", "value"])
def test_what_is_no_text_is_named(tmp_path: Path, shelf: LocalStorage, column: str, at: int) -> None:
    """A record whose bytes are not UTF-8 makes no snapshot in which they are replaced: the error says where it is."""
    rows = [row(0, offset, b"%d" % offset, b"ok") for offset in range(10_000)]
    rows[at][column] = b"\xff\xfe"
    connector = _kept(tmp_path, rows)
    where = rf"topic t .* the {column} of its record in partition 0 at offset {at} is not UTF-8"
    with pytest.raises(SnapshotError, match=where) as caught:
        _taken(connector, shelf, column)
    assert f"Take {column} out of snapshot.string.columns" in caught.value.action
    assert manifest.path_of(shelf, f"c/t/{NAME}") is None


def test_a_snapshot_that_is_no_text_leaves_nothing_behind(tmp_path: Path, shelf: LocalStorage) -> None:
    """What was begun is removed, so that tries do not fill the location; the earlier snapshot stays the newest."""
    connector = _kept(tmp_path, [row(0, 0, b"a", b"1")])
    outside = MemoryBroker(MemoryStorage())
    strict = replace(connector.settings, snapshot_string_columns=frozenset({"value"}))
    snapshots = Snapshots(connector.spark, connector.catalog, connector.quarantine, outside, strict, shelf, frozenset)
    (taken,) = snapshots.take(NOW)
    connector.ingest([row(0, 1, b"a", b"\xff")])
    connector.publish()
    connector.cleaner.clean(0)
    with pytest.raises(SnapshotError, match="partition 0 at offset 1") as caught:
        snapshots.take(NOW)
    assert caught.value.topics == frozenset({"t"})
    assert listing.list_ids(shelf, connector.catalog.state, "t") == (taken.id,)
    assert shelf.read("c/t/LATEST").decode().strip() == taken.id


def test_an_empty_snapshot_has_its_columns(tmp_path: Path, shelf: LocalStorage) -> None:
    """Where every key is deleted there is a file without records, which every tool reads."""
    path = _taken(_kept(tmp_path, [row(0, 0, b"gone", None)]), shelf)
    written = manifest.read(shelf, path)
    assert [(file.records, written.records, written.tombstones_excluded) for file in written.files] == [(0, 0, 1)]
    found = pd.read_parquet(f"{shelf.location}/{path}")
    assert list(found.columns) == [one.name for one in written.schema]
    assert duckdb.execute(f"SELECT count(*) FROM '{shelf.location}/{path}/data/*.parquet'").fetchall() == [(0,)]
