"""A worker that dies at a step: as a whole, or one of its processes alone. The next one, or the same, goes on."""

from __future__ import annotations

import pytest

from tests.faults.cases import Cases
from tests.faults.step_settings import ALL, LAGGING, settings
from tests.faults.strikes import ASLEEP, kill_all, kill_one, stands_at

SELECTED = {"clean.after-commit"}  # kills while publishing: e2e/test_crash.py
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[pytest.mark.selected] if step in SELECTED else []) for step in ALL]
)
def test_a_worker_killed_at_a_step(cases: Cases, step: str) -> None:
    """SIGKILL to all of its processes there: the next worker loses nothing and repeats nothing."""
    with cases.case("SIGKILL of all", step, settings(step)) as case:
        kill_all(case, step)
        assert case.violations() == []


@pytest.mark.parametrize("step", ALL)
def test_one_process_killed_at_a_step(cases: Cases, step: str) -> None:
    """A Python process of Spark's dies: the same worker goes on. The driver dies: its orphans end, the next goes on."""
    with cases.case("SIGKILL of one process", step, settings(step, tasks=True)) as case:
        kill_one(case, step)
        assert case.violations() == []


def test_a_worker_killed_before_a_fold_is_planned(cases: Cases) -> None:
    """What a lag keeps waiting is in the catalog: the next worker plans it."""
    step = "ingest.after-commit"
    with cases.case("SIGKILL of all, with a lag", step, LAGGING) as case:
        worker = stands_at(case.scenario, step, ASLEEP)
        assert any(log.folded_end < log.end for log in case.scenario.deployment.state().logs)
        case.strikes()
        worker.kill()
        case.scenario.start()
        case.recovers()
        assert case.violations() == []


def test_a_driver_killed_before_a_fold_is_planned(cases: Cases) -> None:
    """The same if the driver alone dies."""
    step = "ingest.after-commit"
    with cases.case("SIGKILL of one process, with a lag", step, LAGGING) as case:
        kill_one(case, step)
        assert case.violations() == []
