"""A worker that dies at a step: as a whole, or one of its processes alone. The next one, or the same, goes on."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from tests.faults.cases import Cases
from tests.faults.step_settings import ALL, AT_START, IN_TASKS, settings
from tests.faults.worker_process import WorkerProcess
from tests.support.kafka import wait_until

ASLEEP = "sleep:600000"
SELECTED = {"clean.after-commit"}  # kills while publishing: e2e/test_crash.py
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[pytest.mark.selected] if step in SELECTED else []) for step in ALL]
)
def test_a_worker_killed_at_a_step(cases: Cases, step: str) -> None:
    """SIGKILL to all of its processes there: the next worker loses nothing and repeats nothing."""
    with cases.case("SIGKILL of all", step, settings(step)) as case:
        scenario = case.scenario
        worker = scenario.running()
        if step in AT_START:
            worker.kill()
        scenario.control.arm(step, ASLEEP)
        if step in AT_START:
            worker = scenario.start()
        worker.until_met(step)
        case.strikes()
        worker.kill()
        scenario.start()
        case.recovers()
        case.judge()


@pytest.mark.parametrize("step", ALL)
def test_one_process_killed_at_a_step(cases: Cases, step: str) -> None:
    """A Python process of Spark's dies: the same worker goes on. The driver dies: its orphans end, the next goes on."""
    with cases.case("SIGKILL of one process", step, settings(step, tasks=True)) as case:
        scenario = case.scenario
        worker = scenario.running()
        if step in AT_START:
            worker.kill()
        scenario.control.arm(step, "kill")
        if step in AT_START:
            worker = scenario.start()
        worker.until_met(step)
        case.strikes()
        if step in IN_TASKS:
            case.recovers()
            assert worker.alive, worker.tail()
            case.outcome = "same worker"
        else:
            worker.wait()
            scenario.start()
            case.recovers()
            wait_until(lambda: gone(worker), "the processes of the dead driver end")
        case.judge()


def gone(worker: WorkerProcess) -> bool:
    """Whether no process of its group is left."""
    with suppress(ProcessLookupError):
        os.killpg(worker.process.pid, 0)
        return False
    return True
