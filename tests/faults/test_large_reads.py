"""Faults while a backlog is read at once, in its midst and after it: no record is lost, and none comes twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.faults.cases import CasesOf
from tests.faults.large_scenario import READING, LargeReadScenario
from tests.faults.strikes import fail_once, kill_all, kill_one

STEPS: Final = ("source.plan", "source.read", "ingest.write", "ingest.before-commit", "ingest.after-commit")
RENEW_AFTER: Final = 5
"""Cases on one scenario, each of which adds a burst to what is checked."""
pytestmark = pytest.mark.timeout(900)

LargeReads = CasesOf[LargeReadScenario]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, broker: EmbeddedKafka) -> Iterator[LargeReads]:
    """Where the cases of this file happen."""
    with CasesOf(tmp_path_factory.mktemp("reads"), broker.bootstrap, LargeReadScenario, RENEW_AFTER) as running:
        yield running


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_killed_in_a_large_read(large: LargeReads, step: str) -> None:
    """SIGKILL to all of its processes: the next worker loses nothing and repeats nothing."""
    with large.case("SIGKILL of all, large read", step, READING) as case:
        kill_all(case, step)
        assert case.violations() == []


@pytest.mark.parametrize("step", STEPS)
def test_one_process_killed_in_a_large_read(large: LargeReads, step: str) -> None:
    """A task's process dies: the same worker goes on. The driver dies: the next goes on."""
    with large.case("SIGKILL of one process, large read", step, READING) as case:
        kill_one(case, step)
        assert case.violations() == []


@pytest.mark.parametrize("step", STEPS)
def test_an_error_in_a_large_read(large: LargeReads, step: str) -> None:
    """The same process recovers by itself."""
    with large.case("error, large read", step, READING) as case:
        fail_once(case, step)
        assert case.violations() == []
