"""SIGTERM at each step: the worker ends with 0 in its time, and the next one goes on."""

from __future__ import annotations

import signal

import pytest

from connectors.errors import EXIT_OK
from tests.faults.cases import Cases
from tests.faults.steps import ALL, AT_START, settings
from tests.faults.victim import GRACE_S, MARGIN_S, PATIENCE_S
from tests.support.kafka import wait_until

LATE = "sleep:2000"
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("step", ALL)
def test_a_worker_that_is_stopped_at_a_step(cases: Cases, step: str) -> None:
    """SIGTERM while it stands there: exit code 0 within task.shutdown.graceful.timeout.ms, and nothing is lost."""
    with cases.case("SIGTERM", step, settings(step)) as case:
        field = case.field
        victim = field.running()
        if step in AT_START:
            victim.kill()
        field.control.arm(step, LATE)
        if step in AT_START:
            victim = field.start()
        victim.until_met(step)
        case.strikes()
        code, seconds = victim.terminate()
        assert code == EXIT_OK, victim.tail()
        assert seconds < GRACE_S + MARGIN_S
        case.outcome = f"exit 0 in {seconds:.1f} s"
        field.start()
        case.recovers()
        case.judge()


@pytest.mark.parametrize("step", ["ingest.write", "publish.offsets", "clean.write"])
def test_a_service_manager_tells_every_process(cases: Cases, step: str) -> None:
    """SIGTERM to the whole group, Spark's JVM and its Python processes too: still exit code 0."""
    with cases.case("SIGTERM to the group", step, settings(step)) as case:
        victim = case.field.meet(step, LATE)
        case.strikes()
        victim.signal_all(signal.SIGTERM)
        assert victim.wait(PATIENCE_S) == EXIT_OK, victim.tail()
        case.field.start()
        case.recovers()
        case.judge()


def test_a_stop_in_the_first_seconds(cases: Cases) -> None:
    """A worker that is stopped before it has taken over ends with 0, and fences nobody for nothing."""
    with cases.case("SIGTERM", "before the take-over") as case:
        field = case.field
        field.running().kill()
        epoch = field.place.state().epoch
        victim = field.start()
        wait_until(lambda: victim.processes("java"), "Spark is being started", PATIENCE_S)
        case.strikes()
        code, seconds = victim.terminate()
        assert code == EXIT_OK, victim.tail()
        assert field.place.state().epoch == epoch
        case.outcome = f"exit 0 in {seconds:.1f} s"
        field.start()
        case.recovers()
        case.judge()
