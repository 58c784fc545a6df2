"""Where a log starts under `delete`; ids name the rule or Kafka's test."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compactor.clean.retention import Cause, evaluate_retention, expiring
from compactor.model.actions import Retain
from compactor.model.log import PartitionLog
from compactor.model.log_transitions import retain
from compactor.settings import CompactionPolicy
from tests.support.logs import TP, base, file, log, run

BOTH = CompactionPolicy(cleanup_policy=("compact", "delete"), retention_ms=100)
RAW = replace(BOTH, cleanup_policy=("delete",))
NOW = 1000

OLD, AT, YOUNG = 899, 900, 950
"""Older than retention.ms, exactly as old, younger."""


def raw(*stamps: int, published: int | None = None) -> PartitionLog:
    """Level-0 runs of ten offsets and ten bytes; the largest timestamp of each."""
    runs = (
        replace(run(10 * place, 10 * place + 10, 10, arrived=NOW), max_timestamp=stamp)
        for place, stamp in enumerate(stamps)
    )
    return log(*runs, published=published)


FILES = (file(0, 4, 10, newest_ms=OLD), file(7, 9, 10, newest_ms=OLD), file(10, 17, 10, newest_ms=YOUNG))
CLEANED = replace(log(clean=base(20, 0)), base=replace(base(20, 0), files=FILES, records=16, bytes=30, arrived_ms=NOW))


@pytest.mark.parametrize("policy", [BOTH, RAW], ids=["compact,delete", "delete"])
@pytest.mark.parametrize(
    ("kept", "start"),
    [
        pytest.param(raw(AT, OLD), 0, id="rule 68: strictly older"),
        pytest.param(raw(OLD, YOUNG), 10, id="rule 68: by the largest timestamp of the segment"),
        pytest.param(raw(OLD, OLD, YOUNG, OLD), 20, id="rule 67: stops at the first that does not qualify"),
        pytest.param(raw(YOUNG, OLD), 0, id="rule 67: from the old end"),
        pytest.param(raw(OLD, OLD, OLD, published=25), 20, id="rule 67: never past published"),
        pytest.param(raw(OLD, OLD, OLD, published=19), 10, id="rule 67: nor the segment whose last record is at it"),
        pytest.param(raw(OLD, OLD, published=0), 0, id="rule 67: nothing published"),
        pytest.param(raw(OLD, OLD), 20, id="rule 68: all of it, the only value of a key too (E9)"),
        pytest.param(raw(-1, YOUNG), 0, id="without a timestamp by arrival"),
        pytest.param(raw(0, YOUNG), 10, id="timestamp 0 is one"),
        pytest.param(log(run(0, 10, [file(0, 14, 9, newest_ms=OLD)], arrived=NOW)), 10, id="a file that is cut above"),
        pytest.param(raw(10**15, YOUNG), 0, id="a stamp in the future by arrival"),
        pytest.param(CLEANED, 10, id="the files of the base run are its segments"),
        pytest.param(log(), 0, id="an empty log"),
    ],
)
def test_time_takes_whole_segments_from_the_old_end(kept: PartitionLog, start: int, policy: CompactionPolicy) -> None:
    """testLogsWithSegmentsToDeleteShouldConsiderCleanupPolicyCompactDeleteLogs, and the same for raw runs."""
    found = evaluate_retention(kept, policy, NOW)
    assert (found.tp, found.start) == (kept.tp, start)


def test_a_stamp_in_the_future_expires_by_its_arrival() -> None:
    """KAFKA-18929 does not happen here: what arrived long ago is old, whatever its timestamp says."""
    kept = log(replace(run(0, 10, 1, arrived=OLD), max_timestamp=10**15))
    assert evaluate_retention(kept, BOTH, NOW).start == 10


@pytest.mark.parametrize(
    ("limit", "start"),
    [
        pytest.param(-1, 0, id="no limit"),
        pytest.param(40, 0, id="as large as it may be"),
        pytest.param(31, 0, id="without the oldest it would be smaller than the limit"),
        pytest.param(30, 10, id="rule 66: the oldest goes"),
        pytest.param(11, 20, id="and the next"),
        pytest.param(0, 30, id="all but what is not published"),
    ],
)
def test_size_takes_what_is_beyond_it(limit: int, start: int) -> None:
    """retention.bytes: the oldest segments go as long as the log without them has at least that many bytes."""
    kept = raw(YOUNG, YOUNG, YOUNG, YOUNG, published=35)
    assert evaluate_retention(kept, replace(BOTH, retention_ms=-1, retention_bytes=limit), NOW).start == start


def test_a_file_that_is_half_in_the_base_run_is_not_counted_twice() -> None:
    """A file that a full fold has cut does not make the log look larger: in doubt more is kept."""
    kept = log(run(5, 10, [file(0, 9, 100)]), clean=base(5, 50))
    assert evaluate_retention(kept, replace(BOTH, retention_ms=-1, retention_bytes=1), NOW).start == 0


@pytest.mark.parametrize(
    ("policy", "cause", "start"),
    [
        pytest.param(replace(BOTH, cleanup_policy=("compact",)), Cause.OFF, 0, id="rule 66: compact alone"),
        pytest.param(replace(BOTH, retention_ms=-1), Cause.OFF, 0, id="no limits"),
        pytest.param(BOTH, Cause.TIME, 10, id="by time"),
        pytest.param(replace(BOTH, retention_bytes=10), Cause.SIZE, 20, id="by size, which takes more"),
        pytest.param(replace(BOTH, retention_bytes=20), Cause.TIME, 10, id="both alike"),
        pytest.param(replace(BOTH, retention_ms=500, retention_bytes=30), Cause.KEPT, 0, id="neither"),
        pytest.param(replace(BOTH, retention_ms=0), Cause.TIME, 30, id="retention.ms=0 keeps nothing that is past"),
    ],
)
def test_the_limit_that_takes_more_is_named(policy: CompactionPolicy, cause: Cause, start: int) -> None:
    """Who asks why records are gone is told by which limit, how many files and bytes."""
    found = evaluate_retention(raw(OLD, YOUNG, YOUNG), policy, NOW)
    assert (found.cause, found.start) == (cause, start)
    assert (found.action is None) == (start == 0)
    assert found.text


def test_a_busy_log_waits_and_a_quarantined_one_goes_on() -> None:
    """Rule 71: retention and a fold are never at one log together; better than rule 75, quarantine stops neither."""
    found = expiring([raw(OLD, YOUNG), raw(YOUNG)], BOTH, NOW, ())
    assert [one.action for one in found] == [Retain(topic="t", partition=0, start=10)]
    assert found[0].text == "1 files, 10 bytes, are older than retention.ms: the log starts at 10."
    assert expiring([raw(OLD, YOUNG)], BOTH, NOW, {TP}) == ()


@pytest.mark.parametrize("kept", [raw(OLD, YOUNG), raw(OLD, OLD, published=15), CLEANED, raw(OLD)])
def test_what_retention_decides_fits_and_is_final(kept: PartitionLog) -> None:
    """The start that is decided can be applied, keeps the log sound, and leaves nothing more to expire."""
    after = retain(kept, evaluate_retention(kept, BOTH, NOW).start)
    assert after.start > kept.start
    assert evaluate_retention(after, BOTH, NOW).action is None
