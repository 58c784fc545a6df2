"""What is counted of one partition in one file, and how files add up to a run."""

from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec.structs import replace

from compactor.model import record
from compactor.model.log import RunFile
from compactor.runs.file_stats import FUTURE_MS, FileStats, combine, level0_run, stats_of

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
    assert (both.first_future_offset, _part(far, 5, first=9).first_future_offset) == (1, 9)
    assert (both.future, both.min_timestamp, both.max_timestamp, both.file.newest_ms) == (2, 5, far, far)


def test_records_without_a_key_are_told_apart_from_others_that_are_rejected() -> None:
    """By why they are rejected: a transform may have made a null of the key that a record came with."""
    rows = [
        {"topic": "t", "partition": 3, "offset": at, "timestamp": 1, "timestamp_type": 0, "key": b"k", "rejected": why}
        for at, why in enumerate([None, record.NULL_KEY, "header name"])
    ]
    (part,) = stats_of("runs/x", pa.RecordBatch.from_pylist(rows, schema=record.RUN), ARRIVED)
    later = replace(part, file=replace(part.file, first=9, last=11))
    assert (part.without_key, part.rejected) == (1, 2)
    assert combine(part, later).without_key == 2


def test_a_new_run_adds_up_what_its_files_hold() -> None:
    """Counts are sums, the largest timestamp is that of all, and it ages from the smallest that says anything."""
    file = RunFile(path="a", first=0, last=4, records=3, bytes=30, file_bytes=40, sha256="0")
    one = FileStats(topic="t", partition=0, file=file, tombstones=2, rejected=1, max_timestamp=70, min_timestamp=50)
    other = FileStats(topic="t", partition=0, file=file, tombstones=3, rejected=4, max_timestamp=60, min_timestamp=40)
    found = level0_run(0, 5, (one, other), 100)
    assert (found.records, found.bytes, found.tombstones, found.rejected) == (6, 60, 5, 5)
    assert (found.max_timestamp, found.oldest_ms, found.arrived_ms, found.folded) == (70, 40, 100, False)
    silent = level0_run(0, 5, (replace(one, min_timestamp=None, max_timestamp=-1),), 100)
    assert (silent.max_timestamp, silent.oldest_ms) == (-1, 100)
    assert level0_run(0, 5, (), 100).max_timestamp == -1
