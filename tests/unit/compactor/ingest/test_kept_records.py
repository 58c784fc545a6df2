"""What a log keeps of the keys that a portion brings, held against a plain dict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from compactor.errors import DamagedFileError, MissingFileError
from compactor.fold.memory_budget import TOGETHER, MemoryBudget
from compactor.ingest.appends import Batch
from compactor.ingest.kept_records import with_kept
from compactor.model.state import CatalogState
from compactor.storage.local import LocalStorage
from tests.support.engine import (
    Row,
    gathered,
    ingested,
    intake,
    log_of,
    new_state,
    range_report,
    row,
    with_range_reports,
)
from tests.support.local_spark import LocalFrame

ONE_BY_ONE = MemoryBudget(records=0, bytes=0)


def portion(storage: LocalStorage, rows: Sequence[Row], lo: int, hi: int) -> Batch:
    """Returns what a reading task has written of `rows` of partition 0."""
    report = range_report(0, lo, hi, len(rows))
    return gathered(cast("object", LocalFrame([[*rows, report]], intake(storage, is_indexed=True))))  # type: ignore[arg-type]


def state_with(storage: LocalStorage, *portions: Sequence[Row]) -> CatalogState:
    """Returns a state in which each of `portions` was ingested."""
    state, lo = new_state({0: 0}), 0
    for rows in portions:
        hi = rows[-1]["offset"] + 1
        state = ingested(storage, state, [with_range_reports(rows, {0: (lo, hi)})], is_indexed=True)
        lo = hi
    return state


def pairs(
    storage: LocalStorage,
    state: CatalogState,
    batch: Batch,
    together: MemoryBudget = TOGETHER,
    kept_bytes: int = 1 << 20,
) -> dict[int, tuple[int, bytes | None] | None]:
    """Returns by the offset of each record that comes: offset and value of what is kept of its key."""
    answers = {}
    for brought in with_kept(storage, log_of(state), batch.parts, ["value"], together, kept_bytes):
        kept = brought.kept.to_pylist()
        for record, place in zip(brought.records.to_pylist(), brought.places().to_pylist(), strict=True):
            assert record["offset"] not in answers
            answers[record["offset"]] = None if place is None else (kept[place]["offset"], kept[place]["value"])
    return answers


OLD = [row(0, 0, b"a", b"1"), row(0, 1, b"b", b"1"), row(0, 2, b"c", b"long" * 100)]
NEW = [row(0, 3, b"a", None), row(0, 4, b"d", b"1")]
COMING = [
    row(0, 5, b"a", b"x"),
    row(0, 6, None, b"x"),
    row(0, 7, b"b", None),
    row(0, 8, b"e", b"x"),
    row(0, 9, b"c", b"x"),
    row(0, 10, b"b", b"y"),
]
ANSWERS = {5: (3, None), 7: (1, b"1"), 8: None, 9: (2, b"long" * 100), 10: (1, b"1")}


@pytest.mark.parametrize("kept_bytes", [1 << 20, 300, 1])
@pytest.mark.parametrize("together", [TOGETHER, ONE_BY_ONE])
def test_each_record_comes_with_what_is_kept_of_its_key(
    tmp_path: Path, together: MemoryBudget, kept_bytes: int
) -> None:
    """The latest of its key, a tombstone as well, however few are held at a time; what cannot be folded is left out."""
    storage = LocalStorage(str(tmp_path))
    state = state_with(storage, OLD, NEW)
    batch = portion(storage, COMING, 5, 11)
    assert pairs(storage, state, batch, together, kept_bytes) == ANSWERS


def test_what_is_ingested_already_does_not_come_again(tmp_path: Path) -> None:
    """Records below the log's end are left out, and are no more compared with themselves."""
    storage = LocalStorage(str(tmp_path))
    state = state_with(storage, OLD, NEW)
    batch = portion(storage, [*NEW, *COMING], 3, 11)
    assert pairs(storage, state, batch) == ANSWERS
    assert pairs(storage, state_with(storage, OLD, [*NEW, *COMING]), batch) == {}


def test_a_file_that_is_damaged_or_gone_is_named(tmp_path: Path) -> None:
    """Nothing is decided without it; it is verified as a whole before anything of it is decoded."""
    storage = LocalStorage(str(tmp_path))
    state = state_with(storage, OLD)
    batch = portion(storage, [row(0, 3, b"a", b"x")], 3, 4)
    (run,) = log_of(state).runs
    path = tmp_path / run.files[0].path
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + bytes([whole[40] ^ 255]) + whole[41:])
    with pytest.raises(DamagedFileError, match=f"t-0: the records from offset 3 on .*{path.name}") as failed:
        pairs(storage, state, batch)
    assert "keyfold resync" in str(failed.value)
    path.unlink()
    with pytest.raises(MissingFileError, match=path.name):
        pairs(storage, state, batch)
    path.write_bytes(whole)
    assert pairs(storage, state, batch) == {3: (0, b"1")}


def test_an_index_decides_nothing(tmp_path: Path) -> None:
    """Files without one are read for their keys, and the answer is the same."""
    storage = LocalStorage(str(tmp_path))
    state = state_with(storage, OLD, NEW)
    log = log_of(state)
    runs = tuple(replace(run, files=tuple(replace(file, index=None) for file in run.files)) for run in log.runs)
    bare = replace(state, logs=(replace(log, runs=runs),))
    batch = portion(storage, COMING, 5, 11)
    assert pairs(storage, bare, batch) == ANSWERS
