"""Which logs the next job of full folds takes; ids name the rule or Kafka's test."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from compactor.clean.due import CleaningDecision, Queue, Reason
from compactor.clean.log_to_clean import LogToClean
from compactor.clean.schedule import choose, evaluate_all
from compactor.model.log import PartitionLog
from compactor.model.record import TopicPartition
from compactor.settings import CompactionPolicy, FoldPolicy
from tests.support.logs import base, log, run

T0 = 10**9
POLICY = CompactionPolicy(min_cleanable_dirty_ratio=0.0)


def part(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def ranges() -> list[PartitionLog]:
    """Three logs with a base of 20 offsets, of which [20, 20), [20, 25) and [20, 30) are dirty."""
    dirty = [(), (run(20, 25, 5, arrived=T0),), (run(20, 30, 10, arrived=T0),)]
    return [log(*runs, clean=base(20, 20), tp=part(number), folded_ms=T0) for number, runs in enumerate(dirty)]


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        pytest.param({}, 2, id="testGrabFilthiestCompactedLogReturnsLogWithDirtiestRatio"),
        pytest.param(
            {2: Reason.QUARANTINED}, 1, id="rule 13, testGrabFilthiestCompactedLogIgnoresUncleanablePartitions"
        ),
        pytest.param({2: Reason.BUSY}, 1, id="rule 13, testGrabFilthiestCompactedLogIgnoresInProgressPartitions"),
        pytest.param(
            {1: Reason.QUARANTINED, 2: Reason.BUSY},
            None,
            id="testGrabFilthiestCompactedLogIgnoresBothInProgressPartitionsAndUncleanablePartitions",
        ),
    ],
)
def test_the_filthiest_log_that_may_be_folded_is_chosen(holds: dict[int, Reason], expected: int | None) -> None:
    """Highest ratio first; busy and quarantined logs are passed over; where none is left, none."""
    held = {part(number): reason for number, reason in holds.items()}
    picked = choose(evaluate_all(ranges(), POLICY, FoldPolicy(), T0, held), None, 0).picked
    assert [found.tp.partition for found in picked] == ([] if expected is None else [expected])


def test_a_log_that_cannot_be_judged_stops_no_other() -> None:
    """testGrabFilthiestCompactedLogThrowsException: the trouble of one log is that log's."""
    broken = replace(ranges()[2], clean_end=99)
    found = evaluate_all([*ranges()[:2], broken], POLICY, FoldPolicy(), T0, {})
    assert [decision.reason for decision in found] == [Reason.NOTHING, Reason.DIRTY, Reason.FAULTY]
    assert [decision.tp for decision in choose(found, None, 0).picked] == [part(1)]


def late(number: int, due_ms: int, size: int = 1) -> CleaningDecision:
    measured = LogToClean(cleanable_bytes=size)
    return CleaningDecision(tp=part(number), reason=Reason.OVERDUE, measured=measured, due_ms=due_ms)


def filthy(number: int, head: int, clean: int = 0) -> CleaningDecision:
    measured = LogToClean(clean_bytes=clean, cleanable_bytes=head)
    return CleaningDecision(tp=part(number), reason=Reason.DIRTY, measured=measured)


@pytest.mark.parametrize(
    ("due", "last", "budget", "expected", "next_last"),
    [
        pytest.param([], None, 99, [], None, id="none due"),
        pytest.param([], Queue.FILTHY, 99, [], Queue.FILTHY, id="none due, the turn is kept"),
        pytest.param([filthy(1, 9), late(2, 5)], None, 0, [2], Queue.OVERDUE, id="rule 24: overdue first"),
        pytest.param([filthy(1, 9), late(2, 5)], Queue.OVERDUE, 0, [1], Queue.FILTHY, id="then the filthiest"),
        pytest.param([filthy(1, 9), late(2, 5)], Queue.FILTHY, 0, [2], Queue.OVERDUE, id="then overdue again"),
        pytest.param([late(1, 5)], Queue.OVERDUE, 0, [1], Queue.OVERDUE, id="no other kind waits"),
        pytest.param([late(1, 7), late(2, 5)], None, 0, [2], Queue.OVERDUE, id="longest due first"),
        pytest.param([late(2, 5), late(1, 5)], None, 9, [1, 2], Queue.OVERDUE, id="ties by partition: overdue"),
        pytest.param([filthy(2, 1), filthy(1, 5)], None, 9, [1, 2], Queue.FILTHY, id="ties by partition: ratio"),
        pytest.param([filthy(1, 1, 9), filthy(2, 1, 8)], None, 9, [2], Queue.FILTHY, id="highest ratio"),
        pytest.param(
            [late(1, 5), late(2, 6), filthy(3, 1), filthy(4, 1)], None, 4, [1, 3, 2, 4], Queue.FILTHY, id="in one job"
        ),
        pytest.param([late(1, 5, 50), filthy(2, 1)], None, 10, [1], Queue.OVERDUE, id="the first is never too large"),
        pytest.param([late(1, 5), late(2, 6, 9), late(3, 7)], None, 5, [1], Queue.OVERDUE, id="none is passed over"),
        pytest.param([late(1, 5, 3), late(2, 6, 2)], None, 5, [1, 2], Queue.OVERDUE, id="the budget is filled"),
        pytest.param([late(1, 5, 3), late(2, 6, 3)], None, 5, [1], Queue.OVERDUE, id="and not exceeded"),
    ],
)
def test_overdue_and_filthiest_alternate(
    due: Sequence[CleaningDecision], last: Queue | None, budget: int, expected: Sequence[int], next_last: Queue | None
) -> None:
    """Each kind has its turn, within a job and from job to job; ties are settled by topic and partition."""
    choice = choose(due, last, budget)
    assert ([found.tp.partition for found in choice.picked], choice.last) == (expected, next_last)


def test_neither_kind_starves() -> None:
    """Whatever comes anew in each job, an overdue and a filthy log, even a huge one, are served in two jobs."""
    for mine in (late(9, 100, 1000), filthy(9, 500, 500)):
        others = [late(1, 200), filthy(2, 1), filthy(3, 1)] if mine.queue is Queue.OVERDUE else [late(1, 1), late(2, 2)]
        for start in (None, *Queue):
            last = start
            served: list[int] = []
            for _ in range(2):
                choice = choose([*others, mine], last, 1)
                last, served = choice.last, [*served, *(found.tp.partition for found in choice.picked)]
            assert 9 in served
