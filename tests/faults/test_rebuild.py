"""Storage that is lost and made again: a rebuild that is broken off, and owners of the lost catalog that wake up."""

from __future__ import annotations

import json
import signal

import pytest

from compactor.catalog.commits import commit_path, list_versions
from connectors.errors import EXIT_FENCED, EXIT_OK
from tests.faults.cases import Case, Cases
from tests.faults.scenario import LOSING, Scenario
from tests.faults.step_settings import IN_A_REBUILD
from tests.faults.strikes import ASLEEP, NAP, frozen_at
from tests.faults.worker_process import TIMEOUT_S, WorkerProcess

ASLEEP_AT = ("ingest.before-commit", "catalog.created", "catalog.checkpoint", "publish.sent", "clean.before-commit")
pytestmark = pytest.mark.timeout(600)

LAST = "rebuild.committed"
"""The step after which nothing is lost any more."""


def rebuilding_at(scenario: Scenario, step: str, action: str) -> WorkerProcess:
    """Loses the storage of the worker that runs, and rebuilds it; returns the command, which does `action` there."""
    scenario.running().kill()
    scenario.lose_storage()
    scenario.arm(step, action)
    command = scenario.command("rebuild")
    command.until_met(step)
    return command


def rebuilds(scenario: Scenario) -> None:
    """Rebuilds the storage, to the end."""
    command = scenario.command("rebuild")
    assert command.wait(TIMEOUT_S) == EXIT_OK, command.tail()


def goes_on(case: Case, step: str) -> None:
    """Rebuilds what is not rebuilt yet, and starts a worker."""
    if step != LAST:
        rebuilds(case.scenario)
    case.scenario.start()
    case.recovers()
    assert case.violations() == []


@pytest.mark.parametrize("step", IN_A_REBUILD)
def test_a_rebuild_killed_at_a_step(cases: Cases, step: str) -> None:
    """Asked for again it is done; a worker goes on from it, and nothing is lost or sent twice."""
    with cases.case("SIGKILL of a rebuild", step, LOSING) as case:
        command = rebuilding_at(case.scenario, step, ASLEEP)
        case.strikes()
        command.kill()
        goes_on(case, step)


@pytest.mark.parametrize("step", IN_A_REBUILD)
def test_an_error_in_a_rebuild(cases: Cases, step: str) -> None:
    """The same after an error."""
    with cases.case("error in a rebuild", step, LOSING) as case:
        command = rebuilding_at(case.scenario, step, "error")
        case.strikes()
        assert command.wait(TIMEOUT_S) not in (EXIT_OK, EXIT_FENCED), command.tail()
        goes_on(case, step)


@pytest.mark.parametrize("step", IN_A_REBUILD)
def test_a_frozen_rebuild_wakes_up_under_another_catalog(cases: Cases, step: str) -> None:
    """The storage is lost again and rebuilt by another: that one's worker goes on, and the sleeper changes nothing."""
    with cases.case("rebuild frozen, another catalog", step, LOSING) as case:
        scenario = case.scenario
        sleeper = rebuilding_at(scenario, step, NAP)
        sleeper.signal_all(signal.SIGSTOP)
        case.strikes()
        scenario.lose_storage()
        rebuilds(scenario)
        worker = scenario.start()
        case.recovers()
        sleeper.signal_all(signal.SIGCONT)
        code = sleeper.wait(TIMEOUT_S)
        assert code == EXIT_FENCED or (code == EXIT_OK and step == LAST), sleeper.tail()
        case.outcome = f"exit {code}"
        assert case.violations() == []
        assert worker.alive, worker.tail()


@pytest.mark.parametrize("step", ASLEEP_AT)
def test_a_frozen_worker_wakes_up_under_another_catalog(cases: Cases, step: str) -> None:
    """Its storage is lost and rebuilt meanwhile: the new owner goes on, and the old one ends with 5."""
    with cases.case("frozen, another catalog", step, LOSING) as case:
        scenario = case.scenario
        sleeper = frozen_at(scenario, step)
        case.strikes()
        scenario.lose_storage()
        rebuilds(scenario)
        worker = scenario.start()
        case.recovers()
        sleeper.signal_all(signal.SIGCONT)
        assert sleeper.wait(TIMEOUT_S) == EXIT_FENCED, sleeper.tail()
        case.outcome = "exit 5"
        assert case.violations() == []
        assert worker.alive, worker.tail()


def leave_a_file(scenario: Scenario) -> None:
    """Leaves a commit of another catalog above the newest, as an owner does that slept; no worker runs."""
    storage = scenario.deployment.storage
    newest = list_versions(storage).newest
    body = json.loads(storage.read(commit_path(newest)))
    strange = {"version": newest + 1, "catalog": "another", "commit_id": "0" * 16, "previous": "1" * 16}
    assert storage.create(commit_path(newest + 1), json.dumps(body | strange).encode())


@pytest.mark.parametrize("action", ["kill", "error", "freeze"])
def test_the_file_of_another_catalog_is_replaced(cases: Cases, action: str) -> None:
    """Whatever becomes of the owner that comes to its number, the next one, or the same, replaces it."""
    with cases.case(f"{action} beside another catalog's file", "catalog.replace", LOSING) as case:
        scenario = case.scenario
        scenario.running().kill()
        leave_a_file(scenario)
        scenario.arm("catalog.replace", {"kill": ASLEEP, "error": "error", "freeze": NAP}[action])
        worker = scenario.start()
        worker.until_met("catalog.replace")
        case.strikes()
        if action == "freeze":
            worker.signal_all(signal.SIGSTOP)
        if action == "kill":
            worker.kill()
        if action != "error":
            scenario.start()
        case.recovers()
        if action == "freeze":
            worker.signal_all(signal.SIGCONT)
            assert worker.wait(TIMEOUT_S) == EXIT_FENCED, worker.tail()
            case.outcome = "exit 5"
        assert case.violations() == []
