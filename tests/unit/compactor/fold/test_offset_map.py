"""The last row of every key, found with no more than some keys in memory."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.fold import offset_map
from compactor.fold.memory_budget import OffsetMapBudget
from compactor.fold.offset_map import last_of_keys
from compactor.runs.scan import LOG
from compactor.storage.spill_file import SpillFile

SCHEMA = pa.schema([pa.field(LOG, pa.int32()), pa.field("key", pa.binary()), pa.field("rejected", pa.string())])
Rec = tuple[int, bytes | None, bool]
RECORDS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([None, b"", b"a", b"b", b"a" * 20]) | st.binary(), st.booleans()),
    max_size=60,
)


def batches(found: list[Rec], step: int) -> list[pa.RecordBatch]:
    rows = [{LOG: log, "key": key, "rejected": "odd" if odd else None} for log, key, odd in found]
    return [pa.RecordBatch.from_pylist(rows[at : at + step], SCHEMA) for at in range(0, len(rows), step)]


@given(RECORDS, st.integers(1, 20), st.sampled_from([1, 7, 1_000_000]), st.integers(10, 60))
def test_a_row_is_kept_if_it_is_the_last_of_its_key(found: list[Rec], step: int, fold_at: int, most: int) -> None:
    """However few keys are held, and however often they are folded in between; every rejected row is."""
    kept = last_of_keys(batches(found, step), OffsetMapBudget(most, 1_000_000, waiting=fold_at))
    last = {(log, key): row for row, (log, key, odd) in enumerate(found) if not odd}
    odd = [row for row, one in enumerate(found) if one[2]]
    assert kept is not None
    assert len(kept) == len(found)
    assert rows_of(kept) == sorted([*last.values(), *odd])


@pytest.mark.parametrize("budget", [OffsetMapBudget(20, 1_000), OffsetMapBudget(1_000_000, 150)], ids=["keys", "bytes"])
def test_more_keys_than_are_held_go_to_disk(budget: OffsetMapBudget, spills: list[Counted]) -> None:
    """By number or by bytes; keys that come again and again are never too many."""
    few = last_of_keys(batches([(0, b"%d" % (at % 5), False) for at in range(400)], 3), budget)
    assert few is not None
    assert rows_of(few) == list(range(395, 400))
    assert spills == []
    many = last_of_keys(batches([(0, b"%d" % (at % 100), False) for at in range(400)], 3), budget)
    assert many is not None
    assert rows_of(many) == list(range(300, 400))
    assert len(spills) > 3


def test_no_number_of_keys_is_too_large(spills: list[Counted]) -> None:
    """Two hundred times as many as are held: a row is on disk once on each level, and two levels do for nearly all."""
    count = 4_000
    found = last_of_keys(batches([(0, b"%d" % at, False) for at in range(count)], 1_000), OffsetMapBudget(20, 1 << 20))
    assert found is not None
    assert found.true_count == len(found) == count
    assert found.nbytes == count // 8
    assert len(spills) > 100
    assert sum(one.rows for one in spills) < 3 * count


def test_keys_that_no_class_can_hold_are_told(spills: list[Counted]) -> None:
    """A key that is larger than all that may be held is in some class on every level."""
    assert last_of_keys(batches([(0, b"a" * 2_000, False)], 1), OffsetMapBudget(20, 1_000)) is None
    assert len(spills) == 4
    assert all(one.closed for one in spills)


class Counted(SpillFile):
    """Counts its rows."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self.rows = 0
        self.closed = False

    def add(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        super().add(rows)

    def close(self) -> None:
        self.closed = True
        super().close()


@pytest.fixture
def spills(monkeypatch: pytest.MonkeyPatch) -> list[Counted]:
    """All that goes to disk, from now on."""
    made: list[Counted] = []

    def spilled(schema: pa.Schema) -> Counted:
        made.append(Counted(schema))
        return made[-1]

    monkeypatch.setattr(offset_map, "SpillFile", spilled)
    return made


def rows_of(found: pa.BooleanArray) -> list[int]:
    return [row for row, one in enumerate(found.to_pylist()) if one]
