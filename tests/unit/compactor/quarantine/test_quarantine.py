"""When a log is set aside, for how long, and what that means to its fold."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compactor.clean.decision import Reason, quarantined
from compactor.model.log import PartitionLog, Quarantined, empty
from compactor.model.record import TopicPartition
from compactor.model.state import apply
from compactor.quarantine import quarantine
from tests.support.engine import new_state

MINUTE = 60_000


def _log(held: Quarantined | None = None) -> PartitionLog:
    return replace(empty(TopicPartition("t", 0), 0, 0, None), quarantine=held)


@pytest.mark.parametrize(
    ("failures", "wait_ms"),
    [(0, MINUTE), (1, 2 * MINUTE), (5, 32 * MINUTE), (6, 60 * MINUTE), (40, 60 * MINUTE)],
)
def test_each_failure_waits_twice_as_long(failures: int, wait_ms: int) -> None:
    """A minute at first, an hour at most; the time since when it is set aside stays."""
    held = Quarantined(since_ms=5, retry_ms=9, failures=failures, error="old") if failures else None
    found = quarantine.set_aside(_log(held), "new", 1000).found
    assert (found.retry_ms - 1000, found.failures, found.error) == (wait_ms, failures + 1, "new")
    assert found.since_ms == (5 if failures else 1000)


@pytest.mark.parametrize(("before", "now", "after"), [(False, False, False), (True, False, True), (False, True, True)])
def test_what_cannot_be_published_stays_so(before: bool, now: bool, after: bool) -> None:
    """A fold that fails later does not let publishing go on: what is to be sent is still damaged."""
    held = Quarantined(since_ms=0, retry_ms=0, failures=1, error="e", publishing=before)
    assert quarantine.set_aside(_log(held), "e", 0, publishing=now).found.publishing is after


def test_a_log_that_is_set_aside_is_held_until_it_is_released() -> None:
    """No fold takes it; it is due to be looked at from its time on, not before."""
    state = new_state({0: 0, 1: 0})
    set_aside = quarantine.set_aside(state.logs[1], "gone", 100)
    held = apply(state, [set_aside])
    assert quarantined(held.logs) == {TopicPartition("t", 1): Reason.QUARANTINED}
    assert quarantine.due(held.logs, 100 + MINUTE - 1) == ()
    assert quarantine.due(held.logs, 100 + MINUTE) == (held.logs[1],)
    assert quarantine.due(held.logs, 100 - 60 * MINUTE) == (held.logs[1],)  # set aside by a clock that was ahead
    assert apply(held, [quarantine.release(held.logs[1])]) == state


def test_a_log_whose_fold_fails_is_still_published() -> None:
    """Unless what is to be sent is what cannot be read."""
    assert quarantine.set_aside(_log(), "e", 0).found.publishing is False
