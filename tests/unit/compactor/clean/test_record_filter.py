"""What a rewrite leaves of a batch; on Spark the same is tested in tests/spark/test_rewriter.py."""

from __future__ import annotations

import pyarrow as pa
import pytest

from compactor.clean.record_filter import RecordFilter
from compactor.runs.scan import LOG, SCAN
from tests.support.engine import Row, row


def rows(*found: Row) -> pa.RecordBatch:
    plain = {"delete_horizon": None, "rejected": None, LOG: 0}
    return pa.RecordBatch.from_pylist([{**plain, **one} for one in found], schema=SCAN)


ALL = rows(
    row(0, 0, b"a", b"1"),
    row(0, 1, None, b"1"),
    row(0, 2, b"b", b"1", rejected="odd"),
    row(0, 3, b"c", None),
    row(0, 4, b"d", None, delete_horizon=50),
    row(0, 5, b"e", None, delete_horizon=51, log=1),
    row(0, 6, b"f", None, log=1),
)


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (RecordFilter(by_key=False), {0: None, 1: None, 2: None, 3: None, 4: 50, 5: 51, 6: None}),
        (RecordFilter(), {0: None, 3: None, 4: 50, 5: 51, 6: None}),
        (RecordFilter(horizons=(70, 80), now_ms=50), {0: None, 3: 70, 5: 51, 6: 80}),
        (RecordFilter(horizons=(70, 80), now_ms=49), {0: None, 3: 70, 4: 50, 5: 51, 6: 80}),
    ],
    ids=["raw copy", "merge", "full fold", "full fold, a ms before"],
)
def test_what_is_kept_of_a_batch(keep: RecordFilter, expected: dict[int, int | None]) -> None:
    """By offset, with its horizon: none without a key or that was rejected, no tombstone whose time is over."""
    found = keep.of_batch(ALL)
    assert dict(zip(found["offset"].to_pylist(), found["delete_horizon"].to_pylist(), strict=True)) == expected
    assert keep.of_batch(ALL.slice(0, 0)).num_rows == 0


def test_some_logs_alone_are_numbered_anew() -> None:
    """Each has the horizon that it had by its old number; without any there are none for some either."""
    assert RecordFilter(horizons=(70, 80, 90), now_ms=5).of([2, 0]) == RecordFilter(horizons=(90, 70), now_ms=5)
    assert RecordFilter().of([1]) == RecordFilter()
