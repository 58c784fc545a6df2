"""The last row of every key, found with no more than some keys in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor import lastkeys
from compactor.fold import LOG
from compactor.keyclasses import HashCache
from compactor.lastkeys import last_of_keys
from compactor.room import KeyRoom

SCHEMA = pa.schema([pa.field(LOG, pa.int32()), pa.field("key", pa.binary()), pa.field("rejected", pa.string())])
Rec = tuple[int, bytes | None, bool]
RECORDS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([None, b"", b"a", b"b", b"a" * 20]) | st.binary(), st.booleans()),
    max_size=60,
)


def batches(found: list[Rec], step: int) -> list[pa.RecordBatch]:
    rows = [{LOG: log, "key": key, "rejected": "odd" if odd else None} for log, key, odd in found]
    return [pa.RecordBatch.from_pylist(rows[at : at + step], SCHEMA) for at in range(0, len(rows), step)]


class Reads:
    """Gives the same batches each time, and counts the times."""

    def __init__(self, found: list[Rec], step: int) -> None:
        self.times = 0
        self._batches = batches(found, step)

    def __call__(self) -> Iterator[pa.RecordBatch]:
        self.times += 1
        return iter(self._batches)


@given(RECORDS, st.integers(1, 20), st.sampled_from([1, 7, 1_000_000]), st.integers(10, 60), st.integers(0, 60))
def test_a_row_is_kept_if_it_is_the_last_of_its_key(
    found: list[Rec], step: int, fold_at: int, most: int, hashes: int
) -> None:
    """However few keys and hashes are held, however often they are folded in between; every rejected row is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lastkeys, "_ROWS", fold_at)
        kept = last_of_keys(Reads(found, step), KeyRoom(most, 1_000_000, classes=256, hashes=hashes))
    last = {(log, key): row for row, (log, key, odd) in enumerate(found) if not odd}
    odd = [row for row, one in enumerate(found) if one[2]]
    assert kept is not None
    assert len(kept) == len(found)
    assert [row for row, one in enumerate(kept.to_pylist()) if one] == sorted([*last.values(), *odd])


@pytest.mark.parametrize("room", [KeyRoom(20, 1_000), KeyRoom(1_000_000, 150)], ids=["keys", "bytes"])
def test_more_keys_than_are_held_at_once_are_read_again(room: KeyRoom) -> None:
    """By number or by bytes; keys that come again and again are never too many."""
    many = Reads([(0, b"%d" % (at % 100), False) for at in range(400)], 3)
    found = last_of_keys(many, room)
    assert found is not None
    assert [row for row, one in enumerate(found.to_pylist()) if one] == list(range(300, 400))
    assert many.times > 1
    few = Reads([(0, b"%d" % (at % 5), False) for at in range(400)], 3)
    assert last_of_keys(few, room) is not None
    assert few.times == 1


def test_more_keys_than_all_classes_hold_are_told() -> None:
    """Found in the first pass, not after as many as there are classes."""
    reads = Reads([(0, b"%d" % at, False) for at in range(4_000)], 3)
    assert last_of_keys(reads, KeyRoom(9, 1_000, classes=8)) is None
    assert reads.times == 1


@pytest.mark.parametrize("hashes", [0, 5_000, 10_000])
def test_a_row_takes_a_bit_and_a_hash_no_more_than_is_allowed(hashes: int) -> None:
    """However many records a log has: what is held of each does not fill a task's memory."""
    count = 10_000
    found = last_of_keys(Reads([(0, b"%d" % at, False) for at in range(count)], 1_000), KeyRoom(1_000, 1 << 20))
    assert found is not None
    assert found.true_count == len(found) == count
    assert found.nbytes == count // 8
    cache = HashCache(hashes)
    keys = pa.array([b"%d" % at for at in range(1_000)])
    made = [cache.of(number, keys) for number in range(10)]
    again = [cache.of(number, keys) for number in range(10)]
    assert sum(one is other for one, other in zip(made, again, strict=True)) == hashes // 1_000
    assert all((one == other).all() for one, other in zip(made, again, strict=True))
