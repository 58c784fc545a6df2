"""States of a connector, and how long it waits before it is started again."""

from __future__ import annotations

import pytest

from compactor.errors import CatalogError, FencedError, StorageError
from connectors.runtime.state import Backoff, ConnectorState, Status, failed, restarts, running, starting, stopped

BACKOFF = Backoff(initial_ms=1_000, max_ms=300_000)


def test_the_wait_doubles_up_to_its_limit() -> None:
    """restart.backoff.initial.ms, then twice as long each time, restart.backoff.max.ms at most, however often."""
    assert [BACKOFF.delay_ms(times) for times in (1, 2, 3, 9, 10, 1_000)] == [
        *(1_000, 2_000, 4_000),
        *(256_000, 300_000, 300_000),
    ]


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
    """The failures are counted over short lives; what an operator must decide is not tried again."""
    once = failed(running(Status(), worked=False), StorageError("Away."), BACKOFF, 10_000)
    again = failed(running(starting(once), worked=False), StorageError("Away."), BACKOFF, 50_000)
    assert [(one.failures, one.next_restart_ms) for one in (once, again)] == [(1, 11_000), (2, 52_000)]
    assert failed(again, CatalogError("Damaged."), BACKOFF, 60_000).next_restart_ms is None
    assert failed(again, StorageError("Away."), BACKOFF, 60_000, once=True).next_restart_ms is None
    assert stopped(again).next_restart_ms is None


@pytest.mark.parametrize(
    ("error", "again"),
    [(StorageError("x"), True), (CatalogError("x"), False), (FencedError("x"), False), (ValueError("x"), True)],
)
def test_what_waiting_cannot_help_is_not_tried_again(error: Exception, *, again: bool) -> None:
    """Retriable errors and unknown ones are; a fenced connector never is."""
    assert restarts(error) is again


def test_an_error_is_shown_without_secrets_and_plans() -> None:
    """What `describe` and the log show of a failure is a line or two, whatever a library has put into its text."""
    error = ValueError("sasl.password=hunter2 is refused\n=== Streaming Query ===\nLogical Plan: keyfold")
    assert failed(Status(), error, BACKOFF, 0).error == "sasl.password=[hidden] is refused"
