"""A worker that dies, fails or freezes while a key has one winner over all partitions of a topic."""

from __future__ import annotations

import pytest

from tests.faults.cases import Cases
from tests.faults.step_settings import FILLED, ONE_WINNER, ONE_WINNER_BUSY
from tests.faults.strikes import fail_once, freeze_through_a_take_over, kill_all
from tests.faults.test_storage import take_newest_commit_away

SELECTED = {"publish.committed"}
PUBLISHING = ("publish.plan", "publish.sent", "publish.offsets", "publish.committed", "publish.before-commit")
CHANGING = ("generation.before-commit", "generation.after-commit", "generation.position")
CLEANING = ("clean.before-commit", "clean.after-commit", "snapshot.manifest")
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    "step",
    [
        # make long has the selected one: e2e/test_scope.py kills a worker while it publishes
        pytest.param(step, marks=[pytest.mark.selected, pytest.mark.long] if step in SELECTED else [])
        for step in (*PUBLISHING, *CHANGING, *CLEANING)
    ],
)
def test_a_worker_killed_at_a_step(cases: Cases, step: str) -> None:
    """What was passed over for another partition's record has that one sent by the next worker."""
    settings = ONE_WINNER_BUSY if step in CLEANING else ONE_WINNER
    with cases.case("SIGKILL of all, one winner over a topic", step, settings) as case:
        kill_all(case, step)
        assert case.violations() == []


@pytest.mark.parametrize("step", ["publish.committed", "generation.after-commit", "clean.before-commit"])
def test_a_frozen_worker_wakes_up_after_a_take_over(cases: Cases, step: str) -> None:
    """It changes nothing of what the new owner has decided about all partitions."""
    settings = ONE_WINNER_BUSY if step in CLEANING else ONE_WINNER
    with cases.case("frozen through a take-over, one winner over a topic", step, settings) as case:
        freeze_through_a_take_over(case, step)
        assert case.violations() == []


@pytest.mark.parametrize("step", ["publish.committed", "clean.before-commit"])
def test_an_error_at_a_step(cases: Cases, step: str) -> None:
    """The same worker goes on by itself."""
    settings = ONE_WINNER_BUSY if step in CLEANING else ONE_WINNER
    with cases.case("error, one winner over a topic", step, settings) as case:
        fail_once(case, step)
        assert case.violations() == []


FILLING = ("ingest.wait", "ingest.fill", "ingest.before-commit", "ingest.after-commit")
OF_FILLS = "filled over a topic"


@pytest.mark.parametrize("step", FILLING)
def test_a_worker_killed_while_records_wait(cases: Cases, step: str) -> None:
    """What another partition was waited for is forgotten with it: it is asked for again, and fills the same."""
    with cases.case(f"SIGKILL of all, {OF_FILLS}", step, FILLED) as case:
        kill_all(case, step)
        assert case.violations() == []


@pytest.mark.parametrize("step", FILLING[:2])
def test_a_frozen_worker_wakes_up_while_records_wait(cases: Cases, step: str) -> None:
    """Its files are in no commit."""
    with cases.case(f"frozen through a take-over, {OF_FILLS}", step, FILLED) as case:
        freeze_through_a_take_over(case, step)
        assert case.violations() == []


@pytest.mark.parametrize("step", FILLING[:2])
def test_an_error_while_records_wait(cases: Cases, step: str) -> None:
    """The same worker reads them again."""
    with cases.case(f"error, {OF_FILLS}", step, FILLED) as case:
        fail_once(case, step)
        assert case.violations() == []


def test_the_newest_commit_is_taken_away_while_records_wait(cases: Cases) -> None:
    """The store is one portion older: what was filled is filled again, from logs that have been published since."""
    with cases.case(f"newest catalog commit taken away, {OF_FILLS}", "ingest.after-commit", FILLED) as case:
        take_newest_commit_away(case, "ingest.after-commit")
        assert case.violations() == []
