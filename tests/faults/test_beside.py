"""One connector of twenty is struck: the others of its worker recover with it, or do not notice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.faults.cases import CasesOf
from tests.faults.crowded_scenario import CrowdedScenario
from tests.faults.neighbours import COUNT
from tests.faults.step_settings import ALL, settings
from tests.faults.strikes import comes_to, freeze_all_through_a_take_over, kill_all
from tests.support.kafka import delete_topic

TIMES: Final = 3
"""Errors in a row: the connector fails, is started again and fails again."""
WATCHED_S: Final = 20.0
pytestmark = pytest.mark.timeout(900)

CrowdedCases = CasesOf[CrowdedScenario]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory, broker: EmbeddedKafka) -> Iterator[CrowdedCases]:
    """Where the cases of this file happen."""
    with CasesOf(tmp_path_factory.mktemp("crowd"), broker.bootstrap, CrowdedScenario) as running:
        yield running


@pytest.mark.parametrize("step", ALL)
def test_a_worker_of_many_killed_at_a_step(crowd: CrowdedCases, step: str) -> None:
    """SIGKILL to all of its processes at a step of one connector: the next worker goes on with all twenty."""
    with crowd.case(f"SIGKILL beside {COUNT}", step, settings(step)) as case:
        kill_all(case, step)
        assert case.violations() == []


@pytest.mark.parametrize("step", ALL)
def test_a_frozen_worker_of_many_wakes_up_after_a_take_over(crowd: CrowdedCases, step: str) -> None:
    """It changes nothing for any of the twenty, and ends with 5."""
    with crowd.case(f"frozen beside {COUNT}", step, settings(step)) as case:
        freeze_all_through_a_take_over(case, step)
        assert case.violations() == []


@pytest.mark.parametrize("step", ALL)
def test_one_connector_of_many_fails_at_a_step(crowd: CrowdedCases, step: str) -> None:
    """It fails time and again and recovers by itself; the others publish all the while, and none is started again."""
    with crowd.case(f"error beside {COUNT}", step, settings(step)) as case:
        scenario = case.scenario
        worker = scenario.running()
        with scenario.neighbours_undisturbed() as watch:
            for _ in range(TIMES):
                comes_to(scenario, step, "error")
            case.strikes()
            case.recovers()
            case.outcome = f"others had news every {watch.longest().seconds:.1f} s"
        assert worker.alive, worker.tail()
        assert case.violations() == []


def test_one_connector_of_many_fails_for_good(crowd: CrowdedCases) -> None:
    """Its output is deleted: it is FAILED by name, and the others do not notice."""
    with crowd.case(f"output deleted beside {COUNT}", "while running") as case:
        scenario = case.scenario
        worker = scenario.running()
        with scenario.neighbours_undisturbed() as watch:
            delete_topic(scenario.deployment.bootstrap, scenario.deployment.output)
            worker.until_logged("connector FAILED")
            assert scenario.deployment.output in worker.printed()
            scenario.rest(WATCHED_S)
            case.outcome = f"FAILED by name, others had news every {watch.longest().seconds:.1f} s"
        assert worker.alive, worker.tail()
        with scenario.neighbours.resting(scenario.until):
            assert scenario.neighbours.violations() == []
    crowd.renew()
