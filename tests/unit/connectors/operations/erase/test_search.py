"""What a search for erased keys notes when there is more of them than a receipt names."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from compactor.errors import StorageError
from compactor.model.record import KEY_IDENTITY, RUN
from compactor.snapshot.data_files import TABLE
from compactor.storage.base import TEMPORARY
from compactor.storage.lease import PROBE
from compactor.storage.limits import SMALL_BYTES, UNHEALTHY
from compactor.storage.local import LocalStorage
from connectors.operations.erase.key_matcher import KeyMatcher
from connectors.operations.erase.receipt import (
    BYTES,
    INCOMPLETE,
    MOST_FINDINGS,
    REWRITTEN,
    UNFINISHED,
    UNSEARCHED,
    VALUE,
    Tombstone,
    begun_before,
    erased_keys,
    state_of,
)
from connectors.operations.erase.search import KeySearch, SearchPlaces, snapshot_ids

SALT = b"\0"
KEY = b"alice"
LONG_KEY = b"alice-of-long-name"
"""One of which the bytes are looked for in any file."""


def test_a_file_of_many_keys_hides_no_other_file(tmp_path: Path) -> None:
    """Each snapshot with a key is named, so that it goes, however many rows of the first one have erased keys."""
    names = ["20260101T000000Z-00aa11", "20260102T000000Z-00aa22", "20260103T000000Z-00aa33"]
    for name, rows in zip(names, (MOST_FINDINGS + 5, 2, 1), strict=True):
        folder = tmp_path / "snapshots" / "c" / "t" / name / "data"
        folder.mkdir(parents=True)
        table = {"_key": pa.array([KEY] * rows, pa.binary()), "_partition": [0] * rows, "_offset": range(rows)}
        pq.write_table(pa.table(table), folder / "part.parquet")
    places = SearchPlaces("c", "C", LocalStorage(str(tmp_path / "store")), LocalStorage(str(tmp_path / "snapshots")))
    result = KeySearch(places, KeyMatcher(SALT, erased_keys(SALT, [KEY])), (), 0).snapshots()
    assert list(snapshot_ids(result, VALUE)) == [("t", name) for name in names]
    assert len(result.findings) == MOST_FINDINGS + 2


@pytest.mark.parametrize(("name", "kinds"), [(f"{TEMPORARY}1a2b", {UNFINISHED}), (PROBE, set())])
def test_what_a_dead_writer_has_left_is_told(name: str, kinds: set[str], tmp_path: Path) -> None:
    """Not what a store is asked for the time by: it has no content, and is there as long as workers come."""
    (tmp_path / name).touch()
    matcher = KeyMatcher(SALT, erased_keys(SALT, [KEY]))
    result = KeySearch(SearchPlaces("c", "C", LocalStorage(str(tmp_path)), None), matcher, (), 1 << 62).everywhere()
    assert {finding.what for finding in result.findings} == kinds


@pytest.mark.parametrize(("identity", "what"), [(None, []), ("json", [VALUE]), ("avro", [UNSEARCHED])])
def test_a_snapshot_of_bytes_is_searched_for_every_form_of_a_key(
    tmp_path: Path, identity: str | None, what: list[str]
) -> None:
    """With compaction.key.identity an older snapshot may have the value of a key under other bytes."""
    folder = tmp_path / "c" / "t" / "20260101T000000Z-00aa11" / "data"
    folder.mkdir(parents=True)
    row = {"key": b'{"a":1,"b":2}', "value": b"v", "partition": 0, "offset": 0, "timestamp": 0, "headers": []}
    pq.write_table(pa.Table.from_pylist([row], schema=TABLE), folder / "part.parquet")
    erased = erased_keys(SALT, [b'{"b":2,"a":1}'], None if identity is None else [b'{"a":1,"b":2}'])
    places = SearchPlaces("c", "C", LocalStorage(str(tmp_path / "store")), LocalStorage(str(tmp_path)))
    result = KeySearch(places, KeyMatcher(SALT, erased, identity=identity), (), 0).snapshots()
    assert [finding.what for finding in result.findings] == what


@pytest.mark.parametrize("identity", [None, b"as-compared"])
def test_runs_are_searched_by_what_keys_are_compared_by(tmp_path: Path, identity: bytes | None) -> None:
    """A record of another job's file may have the key under other bytes."""
    key = b"alice" if identity is None else b"other bytes"
    row = dict.fromkeys(RUN.names) | {"topic": "t", "partition": 0, "offset": 0, "key": key, "value": b"v"}
    (tmp_path / "runs").mkdir()
    pq.write_table(pa.Table.from_pylist([row | {KEY_IDENTITY: identity}], RUN), tmp_path / "runs" / "1-a.parquet")
    erased = erased_keys(SALT, [KEY], None if identity is None else [identity])
    matcher = KeyMatcher(SALT, erased, [KEY], None if identity is None else "avro")
    result = KeySearch(SearchPlaces("c", "C", LocalStorage(str(tmp_path)), None), matcher, (), 0).everywhere()
    assert [finding.what for finding in result.findings] == [VALUE]


@pytest.mark.parametrize("name", ["_partition", "_source_partition"])
def test_a_value_that_came_after_the_tombstone_is_told_in_every_table(tmp_path: Path, name: str) -> None:
    """Iceberg's tables have the partition under a name of its own."""
    folder = tmp_path / "c" / "t" / "iceberg" / "data"
    folder.mkdir(parents=True)
    table = {"_key": pa.array([KEY, KEY], pa.binary()), name: [0, 0], "_offset": [4, 6]}
    pq.write_table(pa.table(table), folder / "part.parquet")
    tombstone = Tombstone(key=0, topic="t", partition=0, offset=5, timestamp_ms=0, sent=True)
    places = SearchPlaces("c", "C", LocalStorage(str(tmp_path / "store")), LocalStorage(str(tmp_path)))
    result = KeySearch(places, KeyMatcher(SALT, erased_keys(SALT, [KEY])), [tombstone], 0).snapshots()
    assert [finding.what for finding in result.findings] == [VALUE, REWRITTEN]


@pytest.mark.parametrize("damaged", [slice(4, 44), slice(-20, -10)], ids=["a page", "the footer"])
def test_a_damaged_file_is_not_searched_and_holds_up_no_other(tmp_path: Path, damaged: slice) -> None:
    """Arrow says of some damage what the system says of a disk: the search goes on, and the receipt names the file."""
    folder = tmp_path / "c" / "t" / "20260101T000000Z-00aa11" / "data"
    folder.mkdir(parents=True)
    table = pa.table(
        {"_key": pa.array([KEY, b"bob"] * 50, pa.binary()), "_partition": [0] * 100, "_offset": range(100)}
    )
    for name in ("a", "b"):
        pq.write_table(table, folder / f"{name}.parquet", compression="snappy")
    data = bytearray((folder / "a.parquet").read_bytes())
    data[damaged] = b"\xff" * len(data[damaged])
    (folder / "a.parquet").write_bytes(data)
    places = SearchPlaces("c", "C", LocalStorage(str(tmp_path / "store")), LocalStorage(str(tmp_path)))
    result = KeySearch(places, KeyMatcher(SALT, erased_keys(SALT, [KEY])), (), 0).snapshots()
    assert {Path(finding.file).name: finding.what for finding in result.findings} == {
        "a.parquet": UNSEARCHED,
        "b.parquet": VALUE,
    }


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("path", ["delta/_delta_log/0000000010.checkpoint.parquet", "iceberg/metadata/m.avro"])
def test_a_damaged_file_of_a_table_is_not_searched(tmp_path: Path, path: str, seed: int) -> None:
    """Each decoder has errors of its own: whatever it raises, the file is named, and the search goes on."""
    place = tmp_path / "c" / "t" / path
    place.parent.mkdir(parents=True)
    if place.suffix == ".avro":
        with place.open("wb") as stream:
            schema = {"type": "record", "name": "r", "fields": [{"name": "text", "type": "string"}]}
            fastavro.writer(stream, schema, [{"text": "bob"}] * 50, codec="deflate")
    else:
        pq.write_table(pa.table({"add": ["bob", "ann"] * 50}), place)
    chosen, data = random.Random(seed), bytearray(place.read_bytes())
    for at in chosen.sample(range(len(data)), 12):
        data[at] ^= chosen.randrange(1, 256)
    place.write_bytes(data[: chosen.choice([len(data), len(data) // 2])])
    places = SearchPlaces("c", "C", LocalStorage(str(tmp_path / "store")), LocalStorage(str(tmp_path)))
    result = KeySearch(places, KeyMatcher(SALT, erased_keys(SALT, [KEY]), [KEY]), (), 0).snapshots()
    assert {finding.what for finding in result.findings} <= {UNSEARCHED}
    assert result.searched == {"tables": 1}


class BadSector(LocalStorage):
    """A folder of which the disk cannot read the file `bad`."""

    bad = ""

    def read(self, path: str, at_most: int = SMALL_BYTES) -> bytes:
        if path == self.bad:
            raise StorageError(f"Could not read {path} of alice.", UNHEALTHY) from OSError(errno.EIO, "of alice")
        return super().read(path, at_most)

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        if path == self.bad:
            raise OSError(errno.EIO, "of alice")
        return super().open_input(path, size)


SNAPSHOT = "c/t/20260101T000000Z-00aa11"
FILES = {
    "a run": "runs/1-a.parquet",
    "a note": "notes.json",
    "a snapshot's": f"{SNAPSHOT}/data/country=alice/a.parquet",
    "a checkpoint": "c/t/delta/_delta_log/00.checkpoint.parquet",
    "a table's": "c/t/iceberg/data/a.parquet",
    "a manifest": "c/t/iceberg/metadata/m.avro",
}


@pytest.mark.parametrize("bad", FILES.values(), ids=FILES)
def test_a_file_that_the_disk_cannot_read_holds_up_no_other(tmp_path: Path, bad: str) -> None:
    """It is named as not searched, in the log too: without the value in its folder's name, or what the error quotes."""
    for path in (bad, "zz.json", "c/t/zz.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(LONG_KEY)
    storage = BadSector(str(tmp_path))
    storage.bad = bad
    places = SearchPlaces("c", "C", storage, storage)
    with capture_logs() as told:
        result = KeySearch(places, KeyMatcher(SALT, erased_keys(SALT, [LONG_KEY]), [LONG_KEY]), (), 0).everywhere()
    by_kind = {kind: {each.file for each in result.findings if each.what == kind} for kind in (UNSEARCHED, BYTES)}
    assert by_kind[UNSEARCHED] == {f"{tmp_path}/{bad}"}
    assert {f"{tmp_path}/zz.json", f"{tmp_path}/c/t/zz.json"} <= by_kind[BYTES]
    assert state_of(result.findings, {}) == INCOMPLETE
    lines = [line for line in told if line["event"] == "file not searched for erased keys"]
    assert {Path(line["file"]).name for line in lines} == {Path(bad).name}
    assert {line["error"] for line in lines} <= {"StorageError", "UnreadableFileError"}
    assert "alice" not in str(lines)


@pytest.mark.parametrize("bad", ["_catalog@keyfold.json", "_manifest.json"])
def test_a_snapshot_of_which_the_disk_cannot_read_whose_it_is_is_the_connectors(tmp_path: Path, bad: str) -> None:
    """It does not say that it is of another catalog, so its values are some that have to go."""
    (tmp_path / SNAPSHOT).mkdir(parents=True)
    (tmp_path / SNAPSHOT / bad).write_bytes(b"{}")
    table = {"_key": pa.array([KEY], pa.binary()), "_partition": [0], "_offset": [0]}
    pq.write_table(pa.table(table), tmp_path / SNAPSHOT / "a.parquet")
    storage = BadSector(str(tmp_path))
    storage.bad = f"{SNAPSHOT}/{bad}"
    places = SearchPlaces("c", "C", LocalStorage(str(tmp_path / "store")), storage)
    result = KeySearch(places, KeyMatcher(SALT, erased_keys(SALT, [KEY])), (), 0).snapshots()
    assert sorted(each.what for each in result.findings) == [UNSEARCHED, VALUE]


def test_a_store_that_does_not_answer_ends_the_search(tmp_path: Path) -> None:
    """Nothing is known of any file then."""

    class Away(LocalStorage):
        def read(self, path: str, at_most: int = SMALL_BYTES) -> bytes:
            raise StorageError(f"{path} is not answered in time.", UNHEALTHY)

    (tmp_path / "a.json").write_bytes(LONG_KEY)
    matcher = KeyMatcher(SALT, erased_keys(SALT, [LONG_KEY]), [LONG_KEY])
    with pytest.raises(StorageError, match="not answered in time"):
        KeySearch(SearchPlaces("c", "C", Away(str(tmp_path)), None), matcher, (), 0).everywhere()


def test_a_defect_of_the_search_itself_is_told(tmp_path: Path) -> None:
    """As the file and the class of the error: else it would look like a damaged file for good."""

    class Defect(KeyMatcher):
        def is_in(self, data: bytes | str) -> bool:
            return {"bob": bool(data)}["alice"]

    (tmp_path / "a.json").write_bytes(LONG_KEY)
    matcher = Defect(SALT, erased_keys(SALT, [LONG_KEY]), [LONG_KEY])
    with capture_logs() as told:
        result = KeySearch(SearchPlaces("c", "C", LocalStorage(str(tmp_path)), None), matcher, (), 0).everywhere()
    assert [each.what for each in result.findings] == [UNSEARCHED]
    assert [(line["file"], line["error"]) for line in told] == [(f"{tmp_path}/a.json", "KeyError")]


def test_a_receipt_that_the_disk_cannot_read_tells_of_no_erasure(tmp_path: Path) -> None:
    """Another one begins, as beside a damaged one."""
    (tmp_path / "erasures").mkdir()
    (tmp_path / "erasures" / "1.json").write_bytes(b"{}")
    storage = BadSector(str(tmp_path))
    storage.bad = "erasures/1.json"
    assert begun_before(storage, "C", [KEY], None) is None
