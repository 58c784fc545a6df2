"""The two sides of the dirty ratio; names in capitals of a case's id are Kafka's tests."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compactor.clean.log_to_clean import LogToClean, straddling_runs
from compactor.model.log import PartitionLog
from compactor.model.log_transitions import clean
from tests.support.logs import base, file, log, run

CASES = [
    pytest.param(
        log(run(0, 10, 100)),
        LogToClean(cleanable_bytes=100, cleanable_records=10, oldest_ms=0),
        1.0,
        id="no base: all is dirty",
    ),
    pytest.param(
        log(run(20, 30, 20), run(30, 40, 20), clean=base(20, 40)),
        LogToClean(clean_bytes=40, cleanable_bytes=40, cleanable_records=20, oldest_ms=0),
        0.5,
        id="rule 14, testLogToClean: what is not published would be left out, here nothing",
    ),
    pytest.param(
        log(run(20, 30, 10), run(30, 40, 10), run(40, 50, 7), run(50, 60, 8), clean=base(20, 20), published=40),
        LogToClean(clean_bytes=20, cleanable_bytes=20, uncleanable_bytes=15, cleanable_records=20, oldest_ms=0),
        0.5,
        id="rule 15, testLogToCleanWithUncleanableSection: clean 2, cleanable 2, held 2 on neither side",
    ),
    pytest.param(
        log(run(20, 30, [file(20, 24, 5), file(26, 29, 4)]), clean=base(20, 20), published=26, end=30),
        LogToClean(clean_bytes=20, cleanable_bytes=5, uncleanable_bytes=4, cleanable_records=5, straddling_oldest_ms=0),
        0.2,
        id="files of one run on both sides of published are exact",
    ),
    pytest.param(
        log(run(20, 30, 10), run(30, 40, 60), clean=base(20, 20), published=39),
        LogToClean(
            clean_bytes=20,
            cleanable_bytes=10,
            straddling_bytes=60,
            cleanable_records=10,
            straddling_records=10,
            oldest_ms=0,
            straddling_oldest_ms=0,
        ),
        1 / 3,
        id="a file across published is never counted in proportion",
    ),
    pytest.param(
        log(run(20, 30, [file(20, 23, 6)]), clean=base(20, 20), published=25, end=30),
        LogToClean(clean_bytes=20, cleanable_bytes=6, cleanable_records=4, oldest_ms=0),
        6 / 26,
        id="a run across published whose records are all below it is exact",
    ),
    pytest.param(
        replace(log(run(0, 10, 100), published=5), start=5, clean_end=5, runs=(run(5, 10, [file(0, 9, 100)]),)),
        LogToClean(uncleanable_bytes=100),
        0.0,
        id="testLogStartOffsetLargerThanActiveSegmentBaseOffset: nothing to clean",
    ),
    pytest.param(
        log(run(5, 10, [file(0, 9, 100)]), clean=base(5, 5), published=5, end=10),
        LogToClean(clean_bytes=5, uncleanable_bytes=100),
        0.0,
        id="testDirtyOffsetLargerThanActiveSegmentBaseOffset: nothing to clean, no crash",
    ),
    pytest.param(log(), LogToClean(), 0.0, id="rule 26: an empty log has no ratio"),
    pytest.param(
        log(run(0, 1, 0)),
        LogToClean(cleanable_records=1, oldest_ms=0),
        0.0,
        id="a record of no bytes is dirty and counts no byte",
    ),
]


@pytest.mark.parametrize(("kept", "expected", "ratio"), CASES)
def test_bytes_count_on_the_side_where_all_of_a_file_lies(
    kept: PartitionLog, expected: LogToClean, ratio: float
) -> None:
    """Cleanable is what is published and not clean; what is above published counts on neither side."""
    assert LogToClean.of(kept) == expected
    assert LogToClean.of(kept).ratio == ratio


def test_bounds_of_the_ratio_enclose_what_straddles() -> None:
    """Where a file lies across published, the ratio is from `ratio` to `max_ratio`; `total_bytes` counts all of it."""
    found = LogToClean.of(log(run(0, 10, 60), run(10, 20, 30), clean=None, published=15))
    assert (found.ratio, found.max_ratio, found.total_bytes) == (1.0, 1.0, 90)
    found = LogToClean(clean_bytes=100, cleanable_bytes=0, straddling_bytes=100)
    assert (found.ratio, found.max_ratio, found.total_bytes) == (0.0, 0.5, 200)


def test_runs_to_be_measured_are_those_with_a_cleanable_part() -> None:
    """A run that lies wholly above published, or wholly below, needs no measuring."""
    below, across, above = run(0, 10, 1), run(10, 20, 1), run(20, 30, 1)
    assert straddling_runs(log(below, across, above, published=15)) == (across,)
    assert straddling_runs(log(below, across, above, published=20)) == ()


def test_what_a_clean_cuts_straddles_from_then_on() -> None:
    """A clean that ends inside a file leaves a run whose bytes are no longer exact, and says so."""
    cut = clean(log(run(0, 10, 60), published=5), 5, base(5, 20))
    sent = replace(cut, published=10, folded_end=10)
    assert (LogToClean.of(sent).cleanable_bytes, LogToClean.of(sent).straddling_bytes, straddling_runs(sent)) == (
        0,
        60,
        sent.runs,
    )


def test_the_oldest_record_is_that_of_the_cleanable_runs() -> None:
    """What is held does not start the clock; a run of an older keyfold ages from its arrival."""
    runs = (run(0, 10, 1, arrived=50), run(10, 20, 1, arrived=90, oldest=70), run(20, 30, 1, arrived=90, oldest=1))
    assert LogToClean.of(log(*runs, published=20)).oldest_ms == 50
    assert LogToClean.of(log(*runs[1:], clean=base(10, 1), published=20)).oldest_ms == 70
