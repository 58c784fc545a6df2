"""From when on a follower of the output may be past what a log has published, or folded; from when records age."""

from __future__ import annotations

import pytest

from compactor.model import log_transitions
from compactor.model.log import BASE, OutputPoint, PartitionLog, Run, aged_from, empty
from compactor.model.record import TopicPartition


def _grown(end: int) -> PartitionLog:
    return log_transitions.append(empty(TopicPartition("t", 0), 0, 0, None), 0, end, None, None)


def _base(end: int) -> Run:
    return Run(start=0, end=end, level=BASE, files=(), records=0, bytes=0)


def _times(log: PartitionLog) -> tuple[int | None, int | None]:
    return log.ahead_ms, log.behind_ms


def test_the_first_plan_beyond_published_counts() -> None:
    """It is committed before the first record leaves; the folds that are sent in parts after it change nothing."""
    planned = log_transitions.plan_fold(log_transitions.plan_fold(_grown(10), 4, 100), 8, 200)
    assert _times(planned) == (100, 100)
    assert _times(log_transitions.publish(planned, 4, None)) == (100, 100)
    assert _times(log_transitions.publish(planned, 8, OutputPoint(8, 1))) == (None, 100)


def test_a_full_fold_begins_anew() -> None:
    """Where nothing is sent beyond its end nobody is past it; what was sent since, was not sent before the plan."""
    sent = log_transitions.publish(log_transitions.plan_fold(_grown(10), 4, 100), 4, None)
    assert _times(log_transitions.clean(sent, 4, _base(4), 300, None, 300)) == (None, None)
    further = log_transitions.plan_fold(sent, 8, 350)
    assert _times(log_transitions.clean(further, 4, _base(4), 300, None, 300)) == (350, 300)
    assert _times(log_transitions.clean(further, 4, _base(4), 300)) == (350, 100)


@pytest.mark.parametrize(
    ("smallest", "expected"),
    [
        pytest.param(40, 40, id="rule 19: by its timestamp"),
        pytest.param(None, 100, id="rule 19: timestamps of 0 and -1 say nothing: by arrival"),
        pytest.param(10**15, 100, id="rule 10: a stamp in the future ages from its arrival"),
    ],
)
def test_a_record_ages_from_its_timestamp_at_the_latest_from_its_arrival(smallest: int | None, expected: int) -> None:
    """The clock of max.compaction.lag.ms starts at min(timestamp, arrived)."""
    assert aged_from(smallest, 100) == expected
