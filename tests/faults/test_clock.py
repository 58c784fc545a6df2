"""The worker's wall clock steps while it runs."""

from __future__ import annotations

import pytest

from tests.faults.cases import Cases
from tests.faults.scenario import BUSY

HOUR_MS = 3_600_000
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    ("fault", "ms"), [("clock an hour back", -HOUR_MS), ("clock an hour ahead", HOUR_MS)], ids=["back", "ahead"]
)
def test_the_clock_steps_and_steps_back(cases: Cases, fault: str, ms: int) -> None:
    """Publishing goes on, folds and snapshots too, and nothing is removed that is still needed."""
    with cases.case(fault, "and right again", BUSY) as case:
        worker = case.scenario.running()
        for wrong in (ms, 0):
            case.scenario.control.move_clock(wrong)
            case.strikes()
            case.scenario.rest(8)
            case.recovers()
        assert worker.alive, worker.tail()
        case.outcome = "same worker"
        assert case.violations() == []
