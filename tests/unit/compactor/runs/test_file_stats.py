"""What is counted of one partition in one file."""

from __future__ import annotations

import pyarrow as pa
import pytest

from compactor.model import record
from compactor.runs.file_stats import FUTURE_MS, FileStats, combine, stats_of

ARRIVED = 1_000_000


def _part(*timestamps: int, first: int = 0, arrived_ms: int | None = ARRIVED) -> FileStats:
    rows = [
        {"topic": "t", "partition": 3, "offset": first + at, "timestamp": stamp, "timestamp_type": 0, "key": b"k"}
        for at, stamp in enumerate(timestamps)
    ]
    (part,) = stats_of("runs/x", pa.RecordBatch.from_pylist(rows, schema=record.RUN), arrived_ms)
    return part


@pytest.mark.parametrize(
    ("timestamp", "arrived_ms", "counted"),
    [
        (ARRIVED + FUTURE_MS, ARRIVED, 0),
        (ARRIVED + FUTURE_MS + 1, ARRIVED, 1),
        (ARRIVED + FUTURE_MS + 1, None, 0),
        (-1, ARRIVED, 0),
    ],
    ids=["a minute is no more than clocks differ", "later than that", "only rewritten", "no time"],
)
def test_what_is_stamped_in_the_future_is_counted(timestamp: int, arrived_ms: int | None, counted: int) -> None:
    """A record whose time lies more than a minute after its arrival."""
    assert _part(5, timestamp, arrived_ms=arrived_ms).future == counted


def test_counts_add_up_over_row_groups() -> None:
    """A part of several row groups has the records of all, its smallest time above 0 and its largest."""
    far = ARRIVED + 2 * FUTURE_MS
    both = combine(_part(7, far, 0), _part(far, 5, first=9))
    assert (both.future, both.min_timestamp, both.max_timestamp, both.file.newest_ms) == (2, 5, far, far)
