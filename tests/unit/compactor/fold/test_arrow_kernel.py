"""The last row of each key, whether rows are sorted or looked up in a hash table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from compactor.fold.arrow_kernel import last_of_each, mostly_differ
from compactor.runs.scan import LOG

ROWS = 20_000
SHORT, LONG = b"%d", b"%060d"


def table_of(keys: int, form: bytes = SHORT, logs: int = 1) -> pa.Table:
    """Returns rows with `keys` keys and `logs` logs, by chance."""
    chance = np.random.default_rng(keys)
    names = [form % number if number or logs == 1 else None for number in chance.integers(0, keys, ROWS).tolist()]
    topics = [f"t{number}" for number in chance.integers(0, logs, ROWS).tolist()]
    numbers = pa.array(chance.integers(0, logs, ROWS), pa.int32())
    return pa.table({LOG: numbers, "topic": topics, "key": names})


@pytest.mark.parametrize("form", [SHORT, LONG])
@pytest.mark.parametrize("logs", [1, 3])
@pytest.mark.parametrize("keys", [3, 500, 15_000, 1_000_000])
def test_the_last_row_of_each_is_found_however_often_keys_come(keys: int, logs: int, form: bytes) -> None:
    """By all columns together: a key of another log, or topic, is another one. Null is a key."""
    table = table_of(keys, form, logs)
    for by in ([LOG], ["topic", LOG], []):
        each = zip(*(table[name].to_pylist() for name in (*by, "key")), strict=True)
        assert sorted(last_of_each(table, by).tolist()) == sorted({one: at for at, one in enumerate(each)}.values())


@pytest.mark.parametrize(("keys", "differ"), [(200, False), (2_000, False), (10_000, True), (1_000_000, True)])
def test_rows_are_sorted_if_keys_come_less_than_four_times(keys: int, differ: bool) -> None:
    """That is estimated by the keys at the end: of 20,000 rows, 2,000 keys come ten times each, 10,000 twice."""
    assert mostly_differ(table_of(keys)["key"]) is differ


@pytest.mark.parametrize(("keys", "differ"), [(10_000, False), (1_000_000, True)])
def test_rows_with_long_keys_are_sorted_only_if_next_to_none_comes_again(keys: int, differ: bool) -> None:
    """Each is an object for its hash, and each two of one hash are compared byte by byte."""
    assert mostly_differ(table_of(keys, LONG)["key"]) is differ


def test_keys_that_were_folded_before_say_nothing_of_those_that_come() -> None:
    """Each comes once at the beginning; behind them a hundred keys come again and again."""
    folded = [b"%d" % number for number in range(ROWS)]
    assert not mostly_differ(pa.chunked_array([folded, folded[:100] * (ROWS // 100)]))
    assert mostly_differ(pa.chunked_array([folded]))
