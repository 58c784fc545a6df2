"""What a search for erased keys notes when there is more of them than a receipt names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from compactor.storage.local import LocalStorage
from connectors.operations.erase.key_matcher import KeyMatcher
from connectors.operations.erase.receipt import VALUE, erased_keys
from connectors.operations.erase.search import MOST_FINDINGS, KeySearch, SearchPlaces, snapshot_ids

SALT = b"\0"
KEY = b"alice"


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
