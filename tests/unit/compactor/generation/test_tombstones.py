"""The tombstones that a generation begins with, as files of its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.generation import tombstones
from compactor.generation.tombstones import write_tombstones
from compactor.model.log import Generation, Run
from compactor.model.log_transitions import begin_generation
from compactor.model.record import TopicPartition
from compactor.runs.reader import read
from compactor.runs.scan import whole
from compactor.storage.local import LocalStorage
from tests.support.engine import Row, record_dicts
from tests.support.logs import log

TP = TopicPartition("t", 3)
KEYS = [b"", b"a", b"b\xff", b"c", b"d"]


def rows_of(storage: LocalStorage, lead: Run) -> list[Row]:
    """What a fold reads of the run."""
    generation = Generation(number=2, start=lead.end, first_end=9)
    return record_dicts(read(storage, whole(begin_generation(log(tp=TP), generation, lead))))


@pytest.mark.parametrize("max_bytes", [1 << 27, 1], ids=["one file", "many files"])
def test_each_key_has_one_below_every_offset_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    """By the order of the keys, at -n to -1, with the time of the change."""
    monkeypatch.setattr(tombstones, "_ROWS", 2)
    storage = LocalStorage(str(tmp_path))
    lead = write_tombstones(storage, TP, KEYS, 4, 1_000, max_bytes)
    assert lead is not None
    assert (lead.start, lead.end, lead.records, lead.tombstones, lead.folded) == (-5, 0, 5, 5, True)
    found = rows_of(storage, lead)
    assert [(row["offset"], row["key"]) for row in found] == list(zip(range(-5, 0), KEYS, strict=True))
    assert {(row["value"], row["timestamp"], row["timestamp_type"], row["headers"]) for row in found} == {
        (None, 1_000, 0, None)
    }
    assert {file.path.startswith("runs/4-generation-") for file in lead.files} == {True}


def test_a_key_that_moves_is_that_of_no_other_record(tmp_path: Path) -> None:
    """Its tombstone has its own bytes, and an identity that nobody can know before; others are compared as always."""
    storage, found = LocalStorage(str(tmp_path)), set[bytes]()
    for _ in range(2):
        compare = tombstones.staying(lambda key: (key.upper(), "text"), {b"c"})
        lead = write_tombstones(storage, TP, KEYS, 4, 1_000, 1 << 27, compare)
        assert lead is not None
        generation = begin_generation(log(tp=TP), Generation(number=2, start=0, first_end=9), lead)
        rows = {row["key"]: row for batch in read(storage, whole(generation)) for row in batch.to_pylist()}
        assert sorted(rows) == KEYS
        assert (rows[b"a"]["key_identity"], rows[b"c"]["key_encoding"]) == (b"A", "text")
        found.add(rows[b"c"]["key_identity"])
    assert len(found) == 2
    assert all(len(identity) == 17 for identity in found)
    by_bytes = tombstones.staying(None, {b"c"})
    assert by_bytes(b"a") == (None, None)
    assert by_bytes(b"c")[1] is None


def test_without_keys_there_is_no_run(tmp_path: Path) -> None:
    """Nor any file."""
    assert write_tombstones(LocalStorage(str(tmp_path)), TP, [], 1, 0, 1 << 20) is None
    assert list(tmp_path.iterdir()) == []
