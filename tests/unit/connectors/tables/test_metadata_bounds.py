"""What is read whole of an Iceberg table is bounded, whatever catalog names it, and however it is compressed."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import sqlite3
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from zstandard import ZstdCompressor

from compactor.errors import SnapshotError
from connectors.tables.catalog_files import BoundedFiles, FileBounds
from connectors.tables.iceberg_paths import paths_of
from connectors.tables.metadata_bounds import (
    MANIFEST_BYTES,
    MANIFEST_RECORDS,
    METADATA_BYTES,
    MetadataBudget,
    MetadataFile,
)
from tests.support.tables import Tables, row

ROWS = [row(0, "a"), row(1, "b")]
TEXT: dict[str, Any] = {"type": "record", "name": "r", "fields": [{"name": "text", "type": "string"}]}
BOMB = b"\0" * (MANIFEST_BYTES + 1)


def number(value: int) -> bytes:
    """Returns a number as Avro writes it."""
    zigzag, data = value << 1, bytearray()
    while zigzag > 0x7F:
        data.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*data, zigzag])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def avro(schema: Any, records: int, block: bytes, codec: bytes = b"null") -> bytes:
    """Returns an Avro file with one block."""
    meta = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": codec}
    header = number(len(meta)) + b"".join(text(name) + text(value) for name, value in meta.items()) + b"\0"
    return b"Obj\x01" + header + b"s" * 16 + number(records) + text(block) + b"s" * 16


def deflated(data: bytes) -> bytes:
    made = zlib.compressobj(9, zlib.DEFLATED, -15)
    return made.compress(data) + made.flush()


def opened(folder: Path, name: str, data: bytes, budget: MetadataBudget | None = None) -> bytes:
    """Returns what is read of a file `name` with `data`."""
    (folder / name).write_bytes(data)
    inner = PyArrowFileIO().new_input(f"{folder}/{name}")
    return MetadataFile(inner, budget or MetadataBudget()).open().read()


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2"])
def test_what_is_within_the_bounds_is_read(tmp_path: Path, codec: str) -> None:
    """Metadata, also compressed, and manifests of each codec."""
    written = io.BytesIO()
    fastavro.writer(written, TEXT, [{"text": "x" * 100}] * 2_000, codec=codec)
    assert opened(tmp_path, "m.avro", written.getvalue()) == written.getvalue()
    packed = avro(TEXT, 1, ZstdCompressor().compress(text(b"x" * 100)), b"zstandard")
    assert opened(tmp_path, "z.avro", packed) == packed
    metadata = json.dumps({"columns": ["x"] * 1_000}).encode()
    assert opened(tmp_path, "v1.metadata.json", metadata) == metadata
    packed = gzip.compress(metadata)
    assert opened(tmp_path, "v1.gz.metadata.json", packed) == packed


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.metadata.json", lambda: b" " * (METADATA_BYTES + 1), "more than 8,388,608 bytes"),
        ("a.gz.metadata.json", lambda: gzip.compress(b" " * (METADATA_BYTES + 1)), "more than 8,388,608 bytes"),
        ("a.metadata.json", lambda: b"[" + b"1," * 200_001 + b"1]", "more values than a catalog's"),
        ("a.gz.metadata.json", lambda: gzip.compress(b"[" * 35_001), "more values than a catalog's"),
        ("m.avro", lambda: avro(TEXT, 1, BOMB), "more than 67,108,864 bytes"),
        ("m.avro", lambda: avro(TEXT, 1, deflated(BOMB), b"deflate"), "more than 67,108,864 bytes"),
        ("m.avro", lambda: avro(TEXT, 1, bz2.compress(BOMB), b"bzip2"), "more than 67,108,864 bytes"),
        ("m.avro", lambda: avro(TEXT, 1, ZstdCompressor().compress(BOMB), b"zstandard"), "more than 67,108,864 bytes"),
        ("m.avro", lambda: avro(TEXT, 1, number(1 << 33)[:5] + b"x", b"snappy"), "more than 67,108,864 bytes"),
        ("m.avro", lambda: avro({"type": "record", "name": "r", "fields": []}, 1 << 40, b""), "more than 200,000 rec"),
        ("m.avro", lambda: avro({"type": "array", "items": "null"}, 1, number(1 << 40)), "a list of nothing"),
        ("m.avro", lambda: avro({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}, 1, b""), "list"),
        ("m.avro", lambda: avro(None, 1, b""), "it has no schema"),
        ("m.avro", lambda: avro(TEXT, 1, b"x", b"of-its-own"), "in a way that is not known"),
        ("m.avro", lambda: avro(TEXT, 1, b"x" * 100)[:-20], "it ends too early"),
        ("m.avro", lambda: b"Obj\x01" + number(-1 + (1 << 60)), "it ends"),
        ("a.gz.metadata.json", lambda: b"no gzip", "Not a gzipped file"),
    ],
)
def test_what_is_beyond_the_bounds_is_refused(tmp_path: Path, name: str, data: Callable[[], bytes], said: str) -> None:
    """Before Python's objects are made of it; the error names the file."""
    with pytest.raises(ValueError, match=f"{name}', which is a file of the table's metadata: .*{said}"):
        opened(tmp_path, name, data())


@pytest.mark.parametrize("name", ["a.gz.metadata.json", "m.avro"])
def test_what_would_be_large_is_not_decompressed(tmp_path: Path, name: str) -> None:
    """No more of it than is allowed."""
    much = b"\0" * (3 * MANIFEST_BYTES)
    data = gzip.compress(much, 1) if name.endswith("json") else avro(TEXT, 1, deflated(much), b"deflate")
    del much
    tracemalloc.start()
    with pytest.raises(ValueError, match="more than"):
        opened(tmp_path, name, data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * (METADATA_BYTES if name.endswith("json") else MANIFEST_BYTES)


def test_all_files_of_a_version_are_counted_together(tmp_path: Path) -> None:
    """A list may name any number of manifests, or one many times."""
    budget = MetadataBudget(2_500)
    for _ in range(2):
        opened(tmp_path, "a.avro", avro(TEXT, 1, b"x" * 1_000), budget)
    with pytest.raises(ValueError, match="in all"):
        opened(tmp_path, "a.avro", avro(TEXT, 1, b"x" * 1_000), budget)


def test_files_of_data_may_have_any_size(tmp_path: Path) -> None:
    """They are read in pieces, and are none of metadata."""
    (tmp_path / "big").write_bytes(b" " * (METADATA_BYTES + 1))
    files = BoundedFiles(PyArrowFileIO(), FileBounds(str(tmp_path), "", ""))
    with files.of_data().new_input(f"{tmp_path}/big").open() as stream:
        assert len(stream.read(10)) == 10
    with pytest.raises(ValueError, match="which is a file of the table's metadata"):
        files.new_input(f"{tmp_path}/big").open()


@pytest.mark.parametrize("which", ["*.metadata.json", "snap-*.avro", "*-m0.avro"])
def test_a_commit_refuses_a_table_with_such_a_file(tmp_path: Path, which: str) -> None:
    """Of the worker's own SQL catalog too: who may write into its folder, or bucket, writes the files."""
    tables = Tables("iceberg", tmp_path)
    tables.commit(ROWS)
    (newest,) = [max(path for path in tmp_path.rglob(which))]
    newest.write_bytes(b" " * (METADATA_BYTES + 1) if which.endswith("json") else avro(TEXT, MANIFEST_RECORDS + 1, b""))
    with pytest.raises(SnapshotError, match="which is a file of the table's metadata: it has more than"):
        tables.commit([row(1, "b"), row(2, "c")])


def test_the_metadata_that_a_catalog_names_lies_within_the_warehouse(tmp_path: Path) -> None:
    """It is read by the catalog itself, before there is a table of which the files are bounded."""
    (tmp_path / "secret").write_text("{}")
    tables = Tables("iceberg", tmp_path / "place")
    tables.commit(ROWS)
    with sqlite3.connect(tmp_path / "place" / "iceberg.db") as catalog:
        catalog.execute("UPDATE iceberg_tables SET metadata_location = ?", [f"{tmp_path}/secret"])
    with pytest.raises(SnapshotError, match="secret', which is a file of this machine and not below"):
        tables.commit(ROWS)


def test_each_manifest_is_read_once_for_the_files_that_a_table_names(tmp_path: Path) -> None:
    """Versions share most of theirs, and what is read of all is counted."""
    tables = Tables("iceberg", tmp_path)
    for each in range(6):
        tables.commit([row(number, "a") for number in range(each + 1)])
    read: list[str] = []

    class Counted(BoundedFiles):
        def new_input(self, location: str) -> Any:
            read.append(location)
            return super().new_input(location)

    table = tables.iceberg()
    table.io = Counted(PyArrowFileIO(), FileBounds(tmp_path.as_uri(), "", ""))
    assert len(list(table.snapshots())) > 2
    paths_of(table)
    manifests = [path for path in read if path.endswith("-m0.avro")]
    assert len(manifests) == len(set(manifests)) > 2
