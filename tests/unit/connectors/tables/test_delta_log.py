"""What is read of a Delta table's log is bounded in memory and time, whoever has written there."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from compactor.storage.local import LocalStorage
from connectors.tables.delta_log import COMMIT_BYTES, ENTRIES_BYTES, entry_path, last_commit
from tests.support.tables import Tables, row

OURS = {"commitInfo": {"timestamp": 1, "keyfold.snapshot.id": "s1", "keyfold.epoch": "1", "keyfold.odd": 5}}
LISTS = b"[" + b"[]," * (COMMIT_BYTES // 3) + b"0]"


def log(folder: Path, *entries: bytes) -> LocalStorage:
    """Writes a log of these entries, the oldest first."""
    (folder / "_delta_log").mkdir()
    for version, entry in enumerate(entries):
        (folder / entry_path(version)).write_bytes(entry)
    return LocalStorage(str(folder))


def test_the_properties_are_those_of_our_last_commit(tmp_path: Path) -> None:
    """Of a commit the texts that are ours are returned, whichever line has them, and though others came later."""
    ours = b'{"add": {"partitionValues": {"commitInfo": "x"}}}\n' + json.dumps(OURS).encode() + b"\n{}"
    later = b'{"commitInfo": {"keyfold.epoch": "7"}}\n'
    place = log(tmp_path, ours, later, b'{"commitInfo": null}', b'{"commitInfo": [1]}', b'{"add": {}}')
    assert last_commit(place, 4) == {"keyfold.snapshot.id": "s1", "keyfold.epoch": "1"}
    assert last_commit(place, 5) == {}


@pytest.mark.parametrize("line", [b'{"commitInfo": {"a": %s}}', b'{"add": %s, "x": {"commitInfo": 1}}'])
def test_no_objects_are_made_of_what_is_not_ours(tmp_path: Path, line: bytes) -> None:
    """An entry takes its own bytes, its line and little more, whatever values it has."""
    place = log(tmp_path, json.dumps(OURS).encode(), line % LISTS)
    last_commit(place, 0)
    tracemalloc.start()
    try:
        assert last_commit(place, 1)["keyfold.epoch"] == "1"
        assert tracemalloc.get_traced_memory()[1] < 4 * COMMIT_BYTES
    finally:
        tracemalloc.stop()


def test_a_commit_that_says_more_than_ours_is_not_ours(tmp_path: Path) -> None:
    """An object of more bytes is not read: that would make an object for each of its names."""
    said = json.dumps({"commitInfo": {**OURS["commitInfo"], "filler": "x" * COMMIT_BYTES}})
    assert last_commit(log(tmp_path, said.encode()), 0) == {}


def test_a_log_is_looked_through_up_to_its_bound(tmp_path: Path) -> None:
    """Beyond that our commit counts as lost: entries of any number could be read for ever."""
    place = log(tmp_path, json.dumps(OURS).encode(), *[b"{}"] * 5)
    for version in range(1, 6):
        with (tmp_path / entry_path(version)).open("r+b") as entry:
            entry.truncate(ENTRIES_BYTES // 4 - 100)  # sparse
    assert last_commit(place, 4)["keyfold.epoch"] == "1"
    assert last_commit(place, 5) == {}


def test_a_table_with_a_large_entry_is_committed_to(tmp_path: Path) -> None:
    """What others say of their commits harms none of ours."""
    tables = Tables("delta", tmp_path)
    tables.commit([row(0, "a")])
    entry = tmp_path / "c" / "t" / "delta" / entry_path(1)
    entry.write_bytes(b'{"commitInfo": {"a": %s}}' % LISTS)
    tables.commit([row(1, "b")])
    assert tables.rows() == [row(1, "b")]
    assert tables.delta().version() == 2
