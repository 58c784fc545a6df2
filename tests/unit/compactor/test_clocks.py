"""Wrong clocks are counted every time and said once."""

from __future__ import annotations

import pyarrow as pa
import pytest
import structlog

from compactor.clocks import Clocks
from compactor.metrics import Counters
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


def test_a_stamp_in_the_future_is_said_once() -> None:
    """The first such record's partition is named; the ones after it are only counted."""
    with structlog.testing.capture_logs() as logs:
        clocks = Clocks(Counters())
        clocks.stamped([_part(5), _part(ARRIVED * 2), _part(ARRIVED * 2, first=9)])
    (line,) = logs
    assert (line["topic"], line["partition"], line["up_to_offset"]) == ("t", 3, 0)


def test_a_clock_that_steps_back_is_counted_and_said_once() -> None:
    """Every step back counts; going forward, or standing still, does not."""
    counters = Counters()
    clocks = Clocks(counters)
    with structlog.testing.capture_logs() as logs:
        for now_ms in (10, 10, 20, 15, 16, 3):
            clocks.told(now_ms)
    assert counters.values()["clock_steps_back"] == 2
    assert [line["by_ms"] for line in logs] == [5]
