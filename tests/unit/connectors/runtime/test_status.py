"""States of a connector, in Kafka Connect's words."""

from __future__ import annotations

import pytest

from compactor.errors import StorageError
from connectors.errors import UnreachableError
from connectors.runtime.status import ConnectorState, Status, failed, running, starting, stopped, waiting


@pytest.mark.parametrize(("worked", "left"), [(False, 7), (True, 0)])
def test_failures_count_until_it_has_worked(worked: bool, left: int) -> None:
    """Not until it has lived for so long: a connector that does its work has nothing of the last outage left."""
    status = running(Status(failures=7, error="Away."), worked=worked)
    assert (status.state, status.failures, status.error) == (ConnectorState.RUNNING, left, None)


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        (Status(), ConnectorState.UNASSIGNED),
        (Status(state=ConnectorState.RUNNING), ConnectorState.RESTARTING),
        (Status(state=ConnectorState.FAILED, failures=1), ConnectorState.RESTARTING),
    ],
)
def test_a_start_after_the_first_is_a_restart(before: Status, shown: ConnectorState) -> None:
    """Also of a connector that ran, and was told to start again."""
    assert starting(before).state is shown


def test_a_failed_connector_says_when_it_is_started_again() -> None:
    """The failures are counted over short runs; a connector that is stopped has no next start."""
    once = failed(running(Status(), worked=False), StorageError("Away."), 11_000)
    again = failed(running(starting(once), worked=False), StorageError("Away."), 52_000)
    assert [(one.failures, one.next_restart_ms) for one in (once, again)] == [(1, 11_000), (2, 52_000)]
    assert stopped(again).next_restart_ms is None


def test_an_outage_began_when_the_brokers_fell_silent() -> None:
    """Not when the connector noticed it; a later error says nothing about its begin."""
    error, later = UnreachableError("Away."), UnreachableError("Away.")
    error.silent_ms, later.silent_ms = 48_000, 3_000
    once = waiting(Status(), error, 101_000, 100_000)
    again = waiting(starting(once), later, 202_000, 200_000)
    assert (once.waiting_since_ms, again.waiting_since_ms) == (52_000, 52_000)
    assert waiting(Status(), StorageError("Away."), 101_000, 100_000).waiting_since_ms == 100_000


def test_an_error_is_shown_without_secrets_and_plans() -> None:
    """What `describe` and the log show of a failure is a line or two, whatever a library has put into its text."""
    error = ValueError("sasl.password=hunter2 is refused\n=== Streaming Query ===\nLogical Plan: keyfold")
    assert failed(Status(), error, None).error == "sasl.password=[hidden] is refused"
