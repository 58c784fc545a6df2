"""An error at each step: the same process recovers by itself, through its restarts with back-off."""

from __future__ import annotations

import pytest

from tests.faults.cases import Cases
from tests.faults.step_settings import ALL, LAGGING, settings
from tests.faults.strikes import fail_once

SELECTED = {"catalog.created"}
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[pytest.mark.selected] if step in SELECTED else []) for step in ALL]
)
def test_an_error_at_a_step(cases: Cases, step: str) -> None:
    """The worker lives on and publishes all that it would have without it."""
    with cases.case("error", step, settings(step)) as case:
        fail_once(case, step)
        assert case.violations() == []


def test_an_error_before_a_fold_is_planned(cases: Cases) -> None:
    """What a lag keeps waiting is in the catalog: the same worker plans it."""
    step = "ingest.after-commit"
    with cases.case("error, with a lag", step, LAGGING) as case:
        fail_once(case, step)
        assert case.violations() == []


def test_error_after_error(cases: Cases) -> None:
    """One error in each of several lives: the worker still recovers by itself."""
    with cases.case("error", "six steps one after the other") as case:
        worker = case.scenario.running()
        steps = ("source.plan", "takeover.fence", "takeover.topics", "takeover.query", "ingest.write", "publish.sent")
        for step in steps:
            case.scenario.control.arm(step, "error")
        for step in steps:
            worker.until_met(step)
        case.strikes()
        case.recovers()
        assert worker.alive, worker.tail()
        assert case.violations() == []
