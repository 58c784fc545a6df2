"""A worker that is frozen at a step while another takes over, and wakes up: it changes nothing and ends with 5."""

from __future__ import annotations

import signal

import pytest

from connectors.errors import EXIT_FENCED
from tests.faults.cases import Cases
from tests.faults.scenario import TASKS
from tests.faults.step_settings import ALL, settings
from tests.faults.strikes import freeze_through_a_take_over, frozen_at
from tests.faults.worker_process import TIMEOUT_S

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("step", ALL)
def test_a_frozen_worker_wakes_up_after_a_take_over(cases: Cases, step: str) -> None:
    """The new owner publishes; then the old one goes on from `step`."""
    with cases.case("frozen through a take-over", step, settings(step)) as case:
        freeze_through_a_take_over(case, step)
        assert case.violations() == []


@pytest.mark.parametrize("step", ["publish.position", "publish.sent", "publish.committed"])
def test_a_frozen_publish_task_wakes_up_after_a_take_over(cases: Cases, step: str) -> None:
    """The same in a task of Spark's, which was given its plan before."""
    with cases.case("publish task frozen through a take-over", step, TASKS) as case:
        freeze_through_a_take_over(case, step)
        assert case.violations() == []


@pytest.mark.parametrize("take_over", [True, False], ids=["another owner", "nobody else"])
@pytest.mark.parametrize("step", ["publish.sent", "ingest.write"])
def test_frozen_for_longer_than_every_time_out(cases: Cases, step: str, take_over: bool) -> None:
    """150 s: transactions, sessions and Spark's heartbeats have all timed out when it wakes up."""
    fault = "frozen 150 s, another owner" if take_over else "frozen 150 s, nobody else"
    with cases.case(fault, step) as case:
        sleeper = frozen_at(case.scenario, step)
        case.strikes()
        if take_over:
            case.scenario.start()
            case.recovers()
        case.scenario.rest(150)
        sleeper.signal_all(signal.SIGCONT)
        if take_over:
            assert sleeper.wait(TIMEOUT_S) == EXIT_FENCED, sleeper.tail()
        else:
            case.strikes()
            case.recovers()
        assert case.violations() == []
