"""Data files of snapshots are read a row group at a time, and what is wrong with one is named."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.errors import FoldError, MissingFileError, UnreadableFileError
from compactor.snapshot.file_reader import batches, open_file, read_file
from compactor.snapshot.manifest import DataFile
from compactor.storage.local import LocalStorage


def test_no_batch_has_rows_of_two_row_groups() -> None:
    """Though one of as many rows as are asked for would: the number of rows bounds no memory."""
    written = io.BytesIO()
    pq.write_table(pa.table({"value": [b"%d" % n for n in range(7)]}), written, row_group_size=3)
    with pq.ParquetFile(written) as file:
        small = list(batches(file, 2))
        assert [batch.num_rows for batch in batches(file, 10_000)] == [3, 3, 1]
    assert [batch.num_rows for batch in small] == [2, 1, 2, 1, 1]
    assert [value for batch in small for value in batch["value"].to_pylist()] == [b"%d" % n for n in range(7)]


def _written(folder: Path) -> DataFile:
    pq.write_table(pa.table({"value": [b"%d" % n * 50 for n in range(7)]}), folder / "a.parquet", compression="snappy")
    return DataFile(path="a.parquet", bytes=(folder / "a.parquet").stat().st_size, sha256="", records=7)


def _cut_footer(data: bytes) -> bytes:
    return data[:-20] + data[-8:]


def _other_page(data: bytes) -> bytes:
    return data[:4] + b"\xff" * 40 + data[44:]


@pytest.mark.parametrize("damage", [lambda _: b"", lambda _: b"x" * 100, _cut_footer, _other_page])
def test_a_damaged_file_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Whatever Arrow raises for it, also if only a page is damaged, which is read within the block."""
    file, path = _written(tmp_path), tmp_path / "a.parquet"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FoldError, match=r"a\.parquet cannot be read: "):
        list(read_file(LocalStorage(str(tmp_path)), file, 10))


def test_a_file_has_the_records_that_its_manifest_says(tmp_path: Path) -> None:
    """A file of another number of records is another file."""
    file = msgspec.structs.replace(_written(tmp_path), records=8)
    with pytest.raises(FoldError, match="it has 7 records, not 8"), open_file(LocalStorage(str(tmp_path)), file):
        pass


def test_what_the_system_refuses_is_no_damage(tmp_path: Path) -> None:
    """A missing file is named as missing; an error of the disk within the block is one of the storage."""
    file, storage = _written(tmp_path), LocalStorage(str(tmp_path))
    with pytest.raises(UnreadableFileError), open_file(storage, file):
        raise OSError(errno.EIO, "the disk cannot read it")
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(MissingFileError), open_file(storage, file):
        pass
