"""SIGTERM at each step: the worker ends with 0 in its time, and the next one goes on."""

from __future__ import annotations

import signal

import pytest

from connectors.errors import EXIT_OK
from tests.faults.cases import Cases
from tests.faults.step_settings import ALL, settings
from tests.faults.strikes import stands_at
from tests.faults.worker_process import GRACE_S, MARGIN_S, TIMEOUT_S
from tests.support.kafka import wait_until

LATE = "sleep:2000"
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("step", ALL)
def test_a_worker_that_is_stopped_at_a_step(cases: Cases, step: str) -> None:
    """SIGTERM while it stands there: exit code 0 within task.shutdown.graceful.timeout.ms, and nothing is lost."""
    with cases.case("SIGTERM", step, settings(step)) as case:
        scenario = case.scenario
        worker = stands_at(scenario, step, LATE)
        case.strikes()
        code, seconds = worker.terminate()
        assert code == EXIT_OK, worker.tail()
        assert seconds < GRACE_S + MARGIN_S
        case.outcome = f"exit 0 in {seconds:.1f} s"
        scenario.start()
        case.recovers()
        assert case.violations() == []


@pytest.mark.parametrize("step", ["ingest.write", "publish.offsets", "clean.write"])
def test_a_service_manager_tells_every_process(cases: Cases, step: str) -> None:
    """SIGTERM to the whole group, Spark's JVM and its Python processes too: still exit code 0."""
    with cases.case("SIGTERM to the group", step, settings(step, tasks=True)) as case:
        worker = case.scenario.meet(step, LATE)
        case.strikes()
        worker.signal_all(signal.SIGTERM)
        assert worker.wait(TIMEOUT_S) == EXIT_OK, worker.tail()
        case.scenario.start()
        case.recovers()
        assert case.violations() == []


def test_a_stop_in_the_first_seconds(cases: Cases) -> None:
    """A worker that is stopped before it has taken over ends with 0, and fences nobody for nothing."""
    with cases.case("SIGTERM", "before the take-over") as case:
        scenario = case.scenario
        scenario.running().kill()
        epoch = scenario.deployment.state().epoch
        worker = scenario.start()
        wait_until(lambda: worker.processes("java"), "Spark is being started", TIMEOUT_S)
        case.strikes()
        code, seconds = worker.terminate()
        assert code == EXIT_OK, worker.tail()
        assert scenario.deployment.state().epoch == epoch
        case.outcome = f"exit 0 in {seconds:.1f} s"
        scenario.start()
        case.recovers()
        assert case.violations() == []
