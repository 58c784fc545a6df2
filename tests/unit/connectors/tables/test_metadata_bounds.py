"""What is read whole of an Iceberg table is bounded, whatever catalog names it, and however it is compressed."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import sqlite3
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import read_manifest_list
from zstandard import ZstdCompressor

from compactor.errors import SnapshotError
from connectors.tables.avro_blocks import AvroFileReader, avro_header, avro_number
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


def snapped(data: bytes) -> bytes:
    return bytes(pa.compress(data, "snappy", asbytes=True)) + zlib.crc32(data).to_bytes(4)


FOLDED: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": deflated,
    "bzip2": bz2.compress,
    "snappy": snapped,
    "zstandard": ZstdCompressor().compress,
}


@pytest.mark.parametrize("codec", FOLDED)
def test_blocks_of_each_codec_are_read_as_they_are_unfolded(tmp_path: Path, codec: str) -> None:
    """Once: what is handed on is not compressed, and has the same records."""
    blocks = [text(b"a" * 1_000), text(b"b" * 2_000)]
    head, *bodies = (avro(TEXT, 1, FOLDED[codec](block), codec.encode()) for block in blocks)
    with_two = head + bodies[0].split(b"s" * 16, 1)[1]
    read = opened(tmp_path, "m.avro", with_two)
    assert list(fastavro.reader(io.BytesIO(read))) == [{"text": "a" * 1_000}, {"text": "b" * 2_000}]
    assert read.endswith(number(1) + text(blocks[0]) + b"s" * 16 + number(1) + text(blocks[1]) + b"s" * 16)


@pytest.mark.parametrize("codec", ["bzip2", "zstandard"])
def test_all_streams_of_a_block_are_read_and_counted(tmp_path: Path, codec: str) -> None:
    """Programs that compress by several threads write one after the other."""
    fold = FOLDED[codec]
    whole = text(b"a" * 1_000)
    two = fold(whole[:300]) + fold(whole[300:])
    assert text(whole) in opened(tmp_path, "m.avro", avro(TEXT, 1, two, codec.encode()))
    half = fold(BOMB[: MANIFEST_BYTES // 2 + 1])
    with pytest.raises(ValueError, match=r"m.avro', which is a file of .* it has more than 67,108,864 bytes"):
        opened(tmp_path, "m.avro", avro(TEXT, 1, half + half, codec.encode()))


@pytest.mark.parametrize("codec", FOLDED)
def test_a_bomb_of_each_codec_is_refused_before_it_is_unfolded(tmp_path: Path, codec: str) -> None:
    """In one block, or in many that are small enough each."""
    fold, said = FOLDED[codec], r"m.avro', which is a file of the table's metadata: it has more than 67,108,864 bytes"
    with pytest.raises(ValueError, match=said):
        opened(tmp_path, "m.avro", avro(TEXT, 1, fold(BOMB), codec.encode()))
    first = avro(TEXT, 1, fold(BOMB[: MANIFEST_BYTES // 4]), codec.encode())
    block = first.split(b"s" * 16, 1)[1]
    with pytest.raises(ValueError, match=said):
        opened(tmp_path, "m.avro", first + block * 4)


@pytest.mark.parametrize("codec", [name for name in FOLDED if name != "null"])
@pytest.mark.parametrize("left", [0.0, 0.1, 0.5, 0.95])
def test_a_block_that_is_cut_short_is_refused(tmp_path: Path, codec: str, left: float) -> None:
    """With every codec, by the same words: some libraries give what there is and say nothing."""
    block = FOLDED[codec](random.Random(1).randbytes(3_000))
    cut = avro(TEXT, 1, block[: int(len(block) * left)], codec.encode())
    with pytest.raises(ValueError, match=f"m.avro', which is .*: a block of it, of the codec {codec}, is cut short or"):
        opened(tmp_path, "m.avro", cut)


def test_a_block_with_another_checksum_is_refused(tmp_path: Path) -> None:
    """Snappy's blocks have one."""
    block = snapped(text(b"a" * 100))
    with pytest.raises(ValueError, match="is cut short or damaged: its checksum is another one"):
        opened(tmp_path, "m.avro", avro(TEXT, 1, block[:-1] + b"x", b"snappy"))


def test_metadata_within_the_bounds_is_read(tmp_path: Path) -> None:
    """Also compressed, as it is."""
    metadata = json.dumps({"columns": ["x"] * 1_000}).encode()
    assert opened(tmp_path, "v1.metadata.json", metadata) == metadata
    packed = gzip.compress(metadata)
    assert opened(tmp_path, "v1.gz.metadata.json", packed) == packed


@pytest.mark.parametrize("codec", FOLDED)
def test_pyiceberg_reads_manifests_of_each_codec(tmp_path: Path, codec: str) -> None:
    """Snappy's too, of which pyiceberg needs a library that keyfold does not have."""
    tables = Tables("iceberg", tmp_path)
    tables.commit(ROWS)
    files = BoundedFiles(PyArrowFileIO(), FileBounds(tmp_path.as_uri(), "", ""))
    (path,) = tmp_path.rglob("snap-*.avro")
    (wanted,) = read_manifest_list(files.new_input(str(path)))
    plain = AvroFileReader(files.new_input(str(path)).open().read(), 4)
    meta = plain.header() | {b"avro.codec": codec.encode()}
    sync, count, block = plain.take(16), plain.number(), plain.text()
    path.write_bytes(b"Obj\x01" + avro_header(meta) + sync + avro_number(count) + text(FOLDED[codec](block)) + sync)
    assert list(read_manifest_list(files.new_input(str(path)))) == [wanted]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.metadata.json", lambda: b" " * (METADATA_BYTES + 1), "more than 8,388,608 bytes"),
        ("a.gz.metadata.json", lambda: gzip.compress(b" " * (METADATA_BYTES + 1)), "more than 8,388,608 bytes"),
        ("a.metadata.json", lambda: b"[" + b"1," * 200_001 + b"1]", "more values than a catalog's"),
        ("a.gz.metadata.json", lambda: gzip.compress(b"[" * 35_001), "more values than a catalog's"),
        ("m.avro", lambda: avro({"type": "record", "name": "r", "fields": []}, 1 << 40, b""), "more than 200,000 rec"),
        ("m.avro", lambda: avro(TEXT, 1, b"")[:-18] + b"\x01\0" + b"s" * 16, "more than 200,000 rec"),
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


@pytest.mark.parametrize("codec", ["gz.metadata.json", *(name for name in FOLDED if name != "null")])
def test_what_would_be_large_is_not_unfolded(tmp_path: Path, codec: str) -> None:
    """No more of it than is allowed."""
    is_json, much = codec.endswith("json"), bytes(MANIFEST_BYTES)
    if is_json:
        data = gzip.compress(much, 1)
    else:
        block = snapped(much * 3) if codec == "snappy" else FOLDED[codec](much * 3 if codec == "deflate" else much)
        data = avro(TEXT, 1, block if codec in ("snappy", "deflate") else block * 3, codec.encode())
    del much
    tracemalloc.start()
    with pytest.raises(ValueError, match="more than"):
        opened(tmp_path, f"a.{codec if is_json else 'avro'}", data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * (METADATA_BYTES if is_json else MANIFEST_BYTES)


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
