from __future__ import annotations

import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from msgspec.structs import replace

from compactor.errors import FoldError
from connectors.bootstrap import OpenedTable, TableRecord, open_table, resume
from connectors.errors import BootstrapError, ConfigError, ResumeError, SnapshotGoneError, UsageError
from tests.support.cli import ROOT, environment
from tests.support.snapshot_recipes import snapshots, typed_snapshot

NEWER = "20991121T023000Z-1f0c2a"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return snapshots(tmp_path_factory.mktemp("kept"))


@pytest.fixture
def folder(kept: Path, tmp_path: Path) -> Path:
    """A topic's folder with a snapshot of ann, who is a, and of bob, who is b."""
    return Path(shutil.copytree(kept, tmp_path / "topic", symlinks=True))


def _replace(folder: Path) -> None:
    """Takes a newer snapshot, as it were, and removes the one before."""
    before = (folder / "LATEST").read_text().strip()
    shutil.move(folder / before, folder / NEWER)
    (folder / "LATEST").write_text(f"{NEWER}\n")


def _values(opened: OpenedTable) -> dict[bytes, bytes | None]:
    return {record.key: record.value for record in opened.records()}


def test_the_state_in_three_forms(folder: Path) -> None:
    """Arrow, DuckDB and records have the same; keys and values are bytes."""
    opened = open_table(str(folder))
    assert _values(opened) == {b"ann": b"a", b"bob": b"b"}
    assert dict(zip(*(opened.arrow()[name].to_pylist() for name in ("key", "value")), strict=True)) == {
        b"ann": b"a",
        b"bob": b"b",
    }
    with duckdb.connect() as connection:
        assert opened.duckdb(connection).aggregate("count(*), max(partition)").fetchall() == [(2, 0)]
    ann = next(record for record in opened.records() if record.key == b"ann")
    assert ann == TableRecord(b"ann", b"a", partition=0, offset=3, timestamp=3)


def test_typed_columns_are_fields(tmp_path: Path) -> None:
    """A typed snapshot has its columns by name, and no value."""
    data = Path(typed_snapshot(tmp_path))
    records = {record.key: record for record in open_table(str(data.parents[1])).records()}
    assert records[b"a"].fields == {"status": "paid", "total": Decimal("12.50"), "_rest": None}
    assert records[b"a"].value is None


def test_a_snapshot_that_goes_before_it_is_read_is_replaced_unseen(folder: Path) -> None:
    """The newest is read in its place, and changes go on from that one's end."""
    opened = open_table(str(folder))
    _replace(folder)
    assert opened.snapshot != NEWER
    assert opened.arrow().num_rows == 2
    assert (opened.snapshot, opened.position.snapshot) == (NEWER, NEWER)


def test_a_snapshot_that_goes_once_it_is_handed_out_is_an_error(folder: Path) -> None:
    """What was handed out and what would follow are not of one snapshot."""
    opened = open_table(str(folder))
    opened.arrow()
    _replace(folder)
    with pytest.raises(SnapshotGoneError, match="was removed while it was read"):
        opened.arrow()


def test_records_that_are_begun_are_read_to_the_end(folder: Path) -> None:
    """The files of a folder are open by then."""
    records = open_table(str(folder)).records()
    first = next(records)
    shutil.rmtree(folder)
    assert {first.key, *(record.key for record in records)} == {b"ann", b"bob"}


def test_a_snapshot_that_lacks_a_file_is_named(folder: Path) -> None:
    """It is no newer one that takes its place."""
    for file in folder.glob("*/data/*.parquet"):
        file.unlink()
    with pytest.raises(FoldError, match="lacks a file"):
        open_table(str(folder)).arrow()


@pytest.mark.parametrize("content", [b"PAR1", b"", b"x" * 100])
def test_a_damaged_file_is_named(folder: Path, content: bytes) -> None:
    """Whatever Arrow says of it."""
    for file in folder.glob("*/data/*.parquet"):
        file.write_bytes(content)
    with pytest.raises(FoldError, match="cannot be read"):
        open_table(str(folder)).arrow()


def test_what_is_no_topics_folder(tmp_path: Path, folder: Path) -> None:
    """The error says which folder to name; a name in LATEST that leads elsewhere is not followed."""
    with pytest.raises(UsageError, match="There is no snapshot in"):
        open_table(str(tmp_path / "nothing"))
    (folder / "LATEST").write_text("../elsewhere\n")
    with pytest.raises(UsageError, match="names none"):
        open_table(str(folder))


def test_changes_need_settings_and_an_output_topic(folder: Path) -> None:
    """Each error says what is missing."""
    with pytest.raises(ConfigError, match="settings of Kafka"):
        open_table(str(folder)).changes()
    manifest = next(folder.glob("*/_manifest.json"))
    manifest.write_text(manifest.read_text().replace('"output_topic": "o"', '"output_topic": null'))
    with pytest.raises(ResumeError, match="no output topic"):
        open_table(str(folder), {"bootstrap.servers": "127.0.0.1:1"}).changes()


def test_a_position_of_typed_changes_goes_on_with_the_table(folder: Path) -> None:
    """`resume` would give it bytes: the error says what reads on as before."""
    position = replace(open_table(str(folder)).position, typed=True)
    with pytest.raises(BootstrapError, match="typed keys or fields") as error:
        resume(position.encode(), {"bootstrap.servers": "127.0.0.1:1"})
    assert "changes(position)" in error.value.action


def test_neither_spark_nor_pandas_is_imported(folder: Path) -> None:
    """A service that loads a table is not held up by what only a worker needs."""
    names = "pyspark", "py4j", "pandas", "pydantic", "duckdb"
    script = (
        "import sys; from connectors.bootstrap import open_table; "
        f"open_table({str(folder)!r}).arrow(); list(open_table({str(folder)!r}).records()); "
        f"print([name for name in {names} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
