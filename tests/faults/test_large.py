"""Faults in work that is too large for the driver's memory: publishes, cleans and merges by tasks in two passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from compactor.failpoints import STEPS
from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.faults.cases import CasesOf
from tests.faults.large_scenario import MERGING, PUBLISHING, LargeScenario
from tests.faults.step_settings import IN_TASKS
from tests.faults.strikes import fail_once, kill_all, kill_one

LARGE_STEPS: Final = tuple(step for step in STEPS if step.startswith(("publish.", "clean.", "merge.")))
RENEW_AFTER: Final = 4
"""Cases on one scenario, each of which adds a burst to what is checked."""
pytestmark = pytest.mark.timeout(900)

Large = CasesOf[LargeScenario]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, broker: EmbeddedKafka) -> Iterator[Large]:
    """Where the cases of this file happen."""
    with CasesOf(tmp_path_factory.mktemp("large"), broker.bootstrap, LargeScenario, RENEW_AFTER) as running:
        yield running


def settings(step: str) -> Mapping[str, Any]:
    index = {"state.index": "always"} if step.endswith(".index") else {}
    return {**(MERGING if step.startswith("merge.") else PUBLISHING), **index}


@pytest.mark.parametrize("step", LARGE_STEPS)
def test_a_worker_killed_in_large_work(large: Large, step: str) -> None:
    """SIGKILL to all of its processes: the next worker loses nothing and repeats nothing."""
    with large.case("SIGKILL of all, large", step, settings(step)) as case:
        kill_all(case, step)
        assert case.violations() == []


@pytest.mark.parametrize("step", LARGE_STEPS)
def test_one_process_killed_in_large_work(large: Large, step: str) -> None:
    """A task's process dies: the same worker goes on. The driver dies: the next goes on."""
    with large.case("SIGKILL of one process, large", step, settings(step)) as case:
        kill_one(case, step)
        assert case.violations() == []
    if step in IN_TASKS:  # that worker leaves large work to Spark's own fold from then on
        large.renew()


@pytest.mark.parametrize("step", LARGE_STEPS)
def test_an_error_in_large_work(large: Large, step: str) -> None:
    """The same process recovers by itself."""
    with large.case("error, large", step, settings(step)) as case:
        fail_once(case, step)
        assert case.violations() == []
