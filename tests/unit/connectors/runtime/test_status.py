"""States of a connector, in Kafka Connect's words."""

from __future__ import annotations

from itertools import pairwise

import pytest

from compactor.errors import StorageError
from connectors.errors import UnreachableError
from connectors.operations.describe import STALE_MS
from connectors.runtime.status import (
    WRITE_EVERY_MS,
    WRITE_IDLE_MS,
    ConnectorState,
    Status,
    StatusFile,
    failed,
    read,
    running,
    starting,
    stopped,
    waiting,
)
from tests.support.clocks import ManualClock
from tests.support.memory.storage import MemoryStorage


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


@pytest.mark.parametrize(("counts", "every_ms"), [(True, WRITE_EVERY_MS), (False, WRITE_IDLE_MS)])
def test_the_status_of_an_idle_connector_is_written_more_rarely(counts: bool, every_ms: int) -> None:
    """It is written often enough for `describe` in any case, and at once when the state changes."""
    clock, storage = ManualClock(), MemoryStorage()
    status, times = StatusFile(storage, clock), set[int]()
    for second in range(60):
        status.report({"records_read": second if counts else 7}, worked=True)
        times.add(written_ms(storage))
        clock.advance(1_000)
    assert {after - before for before, after in pairwise(sorted(times))} == {every_ms}
    assert 2 * every_ms < STALE_MS
    status.show(stopped(status.current))
    assert written_ms(storage) == clock.now_ms()


def written_ms(storage: MemoryStorage) -> int:
    content = read(storage)
    assert content is not None
    return content.updated_ms
