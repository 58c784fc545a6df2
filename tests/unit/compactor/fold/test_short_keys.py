"""The last row of each of many short keys, by their words."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from compactor.fold.arrow_kernel import last_of_many
from compactor.fold.short_keys import LONGEST, are_short, last_of_short
from compactor.runs.scan import LOG

KEYS = st.sampled_from([b"", b"\0", b"a", b"a\0", b"a" * 8, b"a" * 9, b"b" * 8 + b"\0"]) | st.binary(max_size=LONGEST)
ROWS = st.lists(st.tuples(st.integers(0, 2), KEYS), min_size=1, max_size=80)
FEW_AT_A_TIME = 3


@given(ROWS, st.integers(0, 5))
def test_the_last_row_of_each_key_and_log_is_found(rows: list[tuple[int, bytes]], before: int) -> None:
    """Keys differ by any byte, by zeros at their ends, and by their logs; wherever they begin in their buffer."""
    keys = pa.array([b"before"] * before + [key for _, key in rows], pa.binary()).slice(before)
    found = last_of_short(keys, np.array([log for log, _ in rows], np.int32))
    assert found.unlike.tolist() == []
    assert sorted(found.last.tolist()) == sorted({one: row for row, one in enumerate(rows)}.values())


@given(ROWS)
def test_what_keys_have_in_common_is_told_however_few_are_looked_at_together(rows: list[tuple[int, bytes]]) -> None:
    """A key's rows may be looked at in different pieces, next to longer keys or not."""
    keys = pa.array([key for _, key in rows], pa.binary())
    found = last_of_short(keys, None, piece=FEW_AT_A_TIME)
    assert sorted(found.last.tolist()) == sorted({key: row for row, (_, key) in enumerate(rows)}.values())


@given(ROWS, st.sampled_from([1, 2, 5]))
def test_keys_of_one_hash_are_told_apart(rows: list[tuple[int, bytes]], hashes: int) -> None:
    """With however few hashes the rows are the same: those that have one in common with another key are compared."""

    def few(words: Iterator[NDArray[np.uint64]]) -> NDArray[np.uint64]:
        return (sum(words) % np.uint64(hashes)) << np.uint64(60)  # type: ignore[return-value]  # of at least one word

    table = pa.table({LOG: pa.array([log for log, _ in rows], pa.int32()), "key": [key for _, key in rows]})
    found = last_of_many(table, [LOG], partial(last_of_short, hashes_of=few))
    assert sorted(found.tolist()) == sorted({one: row for row, one in enumerate(rows)}.values())


def test_a_row_that_is_unlike_has_its_key_in_common_with_no_other_row() -> None:
    """All rows of a hash that two keys have are left to be compared, and no row of another hash."""
    keys = pa.array([b"a", b"b", b"cc", b"a", b"cc"], pa.binary())
    found = last_of_short(keys, None, lambda words: next(words) << np.uint64(60))  # keys of one length
    assert (found.last.tolist(), found.unlike.tolist()) == ([4], [0, 1, 3])


def test_hashes_of_many_keys_spread_over_all_bits_that_are_sorted_by() -> None:
    """Keys that count up, as numbers or as text, share a hash no more often than chance has it."""
    count = 200_000
    for keys in ([b"user-%d" % at for at in range(count)], [at.to_bytes(8, "big") for at in range(count)]):
        found = last_of_short(pa.array(keys, pa.binary()), None)
        assert len(found.last) + len(found.unlike) == count
        assert len(found.unlike) <= 4


@pytest.mark.parametrize(
    ("keys", "short"),
    [
        ([b"a" * LONGEST, b""], True),
        ([b"a" * (LONGEST + 1)], False),
        ([b"a", None], False),
        ([], False),
    ],
)
def test_keys_are_short_if_none_is_long_or_null(keys: list[bytes | None], short: bool) -> None:
    """A null key is not an empty one, and has no words."""
    assert are_short(pa.array(keys, pa.binary())) is short


def test_many_bytes_of_keys_are_not_short() -> None:
    """Places in the bytes of all keys are numbers of 32 bits."""
    keys = pa.array([b"ab", b"c", b"d"], pa.binary())
    assert (are_short(keys, most_bytes=3), are_short(keys.slice(1), most_bytes=3)) == (False, True)


def test_long_keys_are_found_by_their_hashes() -> None:
    """With a key that is long, or null, rows are told apart as before."""
    for long in (b"a" * 99, None):
        table = pa.table({LOG: pa.array([0] * 4, pa.int32()), "key": pa.array([long, b"b", long, b""], pa.binary())})
        assert sorted(last_of_many(table, [LOG]).tolist()) == [1, 2, 3]
