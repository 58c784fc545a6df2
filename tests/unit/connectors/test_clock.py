"""The end of a wait, on a clock that tests set."""

from __future__ import annotations

import pytest

from connectors.clock import Deadline, LoopClock, RunTime
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


@pytest.mark.parametrize(
    ("looks", "passed_ms"),
    [
        pytest.param([50, 100, 150], 150, id="a loop that runs has the time of the clock"),
        pytest.param([100, 200, 300], 300, id="looks that are as late as they may be lose nothing"),
        pytest.param([50, 6_050, 6_100], 200, id="a stall counts as one look"),
        pytest.param([2_050, 4_050, 6_050], 300, id="stalls add up"),
        pytest.param([6_050, 12_050, 18_050], 8_050, id="what is forgiven is used up: then all counts"),
        pytest.param([60_000], 50_000, id="one stall that is longer than what is forgiven"),
    ],
)
def test_a_loop_loses_what_it_did_not_run(looks: list[int], passed_ms: int) -> None:
    """Between two looks passes what a loop that runs would take, and once 10 s were lost, all."""
    time = RunTime(most_ms=100, forgiven_ms=10_000, looked_ms=0)
    for now_ms in looks:
        time = time.looked(now_ms)
    assert time.at(looks[-1]) == passed_ms


def test_a_wait_of_another_kind_counts() -> None:
    """A loop that begins after a request has lost nothing by it."""
    time = RunTime(most_ms=100, forgiven_ms=10_000, looked_ms=0).looked(1_000).begun(5_000).looked(5_050)
    assert time.at(5_050) == 5_050 - 900


def test_the_time_of_a_loop_never_falls() -> None:
    """Others read it in the midst of a stall, before the loop has looked: it stands still."""
    clock = ManualClock(0)
    running, seen = LoopClock(100, 1_000, clock), []
    for step_ms in (50, 50, 500, 500, 500, 50):
        clock.advance(step_ms)
        seen.append(running.monotonic_ms())
        if step_ms == 50:
            running.look()
    assert seen == sorted(seen) == [50, 100, 200, 200, 600, 650]


@pytest.mark.parametrize("stall_ms", [0, 40, 400, 4_000, 400_000])
def test_a_deadline_of_a_loop_comes_however_it_stalls(stall_ms: int) -> None:
    """A wait of 1 s takes 11 s and one stall at most."""
    clock = ManualClock(0)
    running = LoopClock(100, 10_000, clock)
    deadline = Deadline(1.0, running)
    while not deadline.has_passed:
        clock.advance(50 + stall_ms)
        running.look()
    assert clock.at_ms <= 11_000 + 50 + stall_ms
