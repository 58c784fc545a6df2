"""The last row of every key, found with no more than the keys in memory."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor import lastkeys
from compactor.fold import LOG
from compactor.lastkeys import LastKeys

SCHEMA = pa.schema([pa.field(LOG, pa.int32()), pa.field("key", pa.binary()), pa.field("rejected", pa.string())])
Rec = tuple[int, bytes | None, bool]
RECORDS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([None, b"", b"a", b"b", b"a" * 20]), st.booleans()), max_size=60
)


def batches(found: list[Rec], step: int) -> list[pa.RecordBatch]:
    rows = [{LOG: log, "key": key, "rejected": "odd" if odd else None} for log, key, odd in found]
    return [pa.RecordBatch.from_pylist(rows[at : at + step], SCHEMA) for at in range(0, len(rows), step)]


@given(RECORDS, st.integers(1, 20), st.sampled_from([1, 7, 1_000_000]))
def test_a_row_is_kept_if_it_is_the_last_of_its_key(found: list[Rec], step: int, fold_at: int) -> None:
    """However often what is held is folded in between; never a row without a key, nor a rejected one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lastkeys, "_ROWS", fold_at)
        keys = LastKeys(1_000, 1_000_000)
        assert all(keys.add(batch) for batch in batches(found, step))
        kept = keys.last()
    last = {(log, key): row for row, (log, key, odd) in enumerate(found) if key is not None and not odd}
    assert keys.rows == len(found)
    assert [row for row, one in enumerate(kept) if one] == sorted(last.values())


@pytest.mark.parametrize(("most_keys", "most_bytes"), [(9, 1_000), (100, 40)])
def test_more_keys_than_may_be_held_are_told(most_keys: int, most_bytes: int) -> None:
    """By number or by bytes; keys that come again and again are never too many."""
    many = LastKeys(most_keys, most_bytes)
    assert not all(many.add(batch) for batch in batches([(0, b"%d" % at, False) for at in range(400)], 3))
    few = LastKeys(most_keys, most_bytes)
    assert all(few.add(batch) for batch in batches([(0, b"%d" % (at % 5), False) for at in range(400)], 3))
