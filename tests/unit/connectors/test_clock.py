"""The end of a wait, on a clock that tests set."""

from __future__ import annotations

from connectors.clock import Deadline
from tests.support.clocks import ManualClock


def test_a_deadline_counts_down_to_zero() -> None:
    """A wait has the seconds that are left of it, and once it is over none, never fewer."""
    clock = ManualClock()
    deadline = Deadline(1.5, clock)
    seen = []
    for step_ms in (0, 500, 1_000, 1_000):
        clock.advance(step_ms)
        seen.append((deadline.left_s, deadline.has_passed))
    assert seen == [(1.5, False), (1.0, False), (0.0, True), (0.0, True)]
