"""The folders of partitions that have no file any more go with their names, and no writer finds its own gone."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from compactor.storage.local import LocalStorage
from connectors.tables.table_partitions import remove_empty_folders

ALICE, BOB = "data/name=alice", "data/name=bob/day=1"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with one file, and two partitions without any."""
    for folder in (ALICE, BOB, "log"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "log" / "1.json").touch()
    return tmp_path


def _folders(table: Path) -> set[str]:
    return {str(path.relative_to(table)) for path in table.rglob("*") if path.is_dir()}


def test_folders_without_files_go_at_every_depth(table: Path) -> None:
    """What is left has files; the table's own folder stays."""
    waits: list[int] = []
    assert remove_empty_folders(LocalStorage(str(table)), waits.append) is None
    assert (_folders(table), waits) == ({"log"}, [1_000])
    assert remove_empty_folders(LocalStorage(str(table)), waits.append) is None
    assert waits == [1_000]  # nothing is waited for if there is no such folder
    (table / "log" / "1.json").unlink()
    remove_empty_folders(LocalStorage(str(table)), waits.append)
    assert table.exists()


@pytest.mark.parametrize("also", [False, True])
def test_a_folder_that_a_writer_has_just_made_is_left_to_it(table: Path, *, also: bool) -> None:
    """It makes its file within the second, or has not yet: that is said, as the folder's name may have an old value."""

    def write(_: int) -> None:
        (table / "data/name=carol").mkdir()
        (table / BOB / "1.parquet").touch()
        if also:
            (table / "data/name=carol/1.parquet").touch()

    why = remove_empty_folders(LocalStorage(str(table)), write)
    assert _folders(table) == {"log", "data", "data/name=bob", BOB, "data/name=carol"}
    assert (table / BOB / "1.parquet").exists()
    assert (why is None) if also else ("1 folders without files" in str(why))


def test_a_folder_that_another_has_removed_or_is_at_work_in(table: Path) -> None:
    """The first is gone as it should; of the second it is said that it stays."""

    def write(_: int) -> None:
        (table / ALICE).rmdir()
        (table / BOB / "1.parquet").touch()
        (table / BOB / "1.parquet").unlink()

    assert "2 folders without files" not in str(remove_empty_folders(LocalStorage(str(table)), lambda _: None))
    (table / ALICE).mkdir(parents=True)
    (table / BOB).mkdir(parents=True)
    assert "folders without files have changed" in str(remove_empty_folders(LocalStorage(str(table)), write))
    assert _folders(table) == {"log", "data", "data/name=bob", BOB}


def test_what_cannot_be_removed_is_said(table: Path) -> None:
    """Else a receipt would say that nothing is left, beside a folder with the name of the erased."""

    def refused(_: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    why = remove_empty_folders(LocalStorage(str(table)), lambda _: None, refused)
    assert why == "a folder without files cannot be removed: Permission denied"
