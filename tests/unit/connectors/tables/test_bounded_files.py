"""What a catalog names is read in bounded pieces: a manifest of any size would take all memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io
from pyiceberg.manifest import read_manifest_list

from connectors.tables.catalog_files import WHOLE_BYTES, BoundedFiles, FileBounds


@pytest.fixture
def files(tmp_path: Path) -> BoundedFiles:
    return BoundedFiles(load_file_io({}, str(tmp_path)), FileBounds(f"file://{tmp_path}", "", ""))


def test_a_manifest_of_any_size_is_not_read(files: BoundedFiles, tmp_path: Path) -> None:
    """The error names the file; a commit fails by it, and nothing else."""
    path = tmp_path / "manifests.avro"
    with path.open("wb") as file:
        file.truncate(100 << 30)  # it takes no room
    with pytest.raises(ValueError, match=r"manifests.avro', which is a file of the table's metadata: it has more"):
        list(read_manifest_list(files.new_input(str(path))))


def test_a_large_data_file_is_read_in_pieces(files: BoundedFiles, tmp_path: Path) -> None:
    """Of Parquet the columns that are asked for are read, however large the file is."""
    path = tmp_path / "data.parquet"
    table = pa.table({"n": [1, 2], "large": pa.array([b"a" * WHOLE_BYTES, b"b"], pa.binary())})
    pq.write_table(table, path, compression="none")
    opened: Any = files.of_data().new_input(str(path))
    assert len(opened) > WHOLE_BYTES
    with opened.open() as stream:
        assert pq.read_table(stream, columns=["n"]).to_pydict() == {"n": [1, 2]}
