"""How a run ends when it is stopped; without Spark and brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from compactor.errors import FencedError
from connectors.errors import UnreachableError
from connectors.runtime.run_ending import RunEnding
from connectors.runtime.stop import Stop
from connectors.spark.cancellable_job import CancellableJob
from tests.support.clocks import ManualClock


class Task:
    """What there is to end; `busy` is how many looks at the engine find it under way."""

    def __init__(self, busy: int = 0) -> None:
        self.clock = ManualClock(0)
        self.stop = Stop()
        self.maintenance_thread = Mock()
        self.maintenance = Mock()
        self.engine = Mock(interrupted=False)
        self.engine.is_idle.side_effect = lambda: self._looks() > busy
        self.catalog = Mock()
        self.catalog.refresh.return_value = SimpleNamespace(buckets=2)
        self.fenced: list[tuple[str, ...]] = []
        self.away: Exception | None = None
        """What fencing fails with."""
        self._looked = 0

    @property
    def ending(self) -> RunEnding:
        connector = Mock(transactional_id=lambda bucket: f"c-{bucket}")
        this: Any = self
        return RunEnding(this, self.maintenance_thread, connector, Mock(), self.clock, self.stop, self._fence)

    def _fence(self, _: object, ids: Iterable[str], __: float) -> None:
        if self.away is not None:
            raise self.away
        self.fenced.append(tuple(ids))

    def _looks(self) -> int:
        self._looked += 1
        return self._looked


def test_the_micro_batch_under_way_may_end() -> None:
    """No other begins, and no wait is longer than it takes."""
    task = Task(busy=20)
    task.stop.drop(6_000)
    task.ending.await_step()
    assert task.engine.begin_close.called
    assert task.clock.monotonic_ms() == 2_000


@pytest.mark.parametrize("hastened", [False, True], ids=["from the first", "after a stop that finishes"])
def test_one_that_does_not_end_in_time_is_left_to_be_cancelled(*, hastened: bool) -> None:
    """Also where a stop that gives it all the time it takes is followed by one that does not."""
    task = Task(busy=10**9)
    if hastened:
        task.stop.finish()
        task.engine.begin_close.side_effect = lambda: task.stop.drop(6_000)
    else:
        task.stop.drop(6_000)
    task.ending.await_step()
    assert task.clock.monotonic_ms() == 6_000


@pytest.mark.parametrize(("finishes", "interrupted"), [(True, False), (False, True)])
def test_a_stop_that_finishes_lets_a_fold_end(*, finishes: bool, interrupted: bool) -> None:
    """Only what is to be cancelled is told that its failing means nothing."""
    task = Task()
    if finishes:
        task.stop.finish()
    else:
        task.stop.drop(6_000)
    task.ending.interrupt_maintenance()
    assert task.maintenance.interrupt.called is interrupted


@pytest.mark.parametrize(
    ("stopped", "interrupted", "ids"), [(True, True, [("c-0", "c-1")]), (True, False, []), (False, True, [])]
)
def test_a_cancelled_transaction_is_ended(*, stopped: bool, interrupted: bool, ids: list[tuple[str, ...]]) -> None:
    """Readers of the output would wait for it until its time-out; a run that goes on fences by itself (T2)."""
    task = Task()
    task.engine.transaction_may_be_open = interrupted
    if stopped:
        task.stop.finish()
    task.ending.abort_transactions()
    assert task.fenced == ids


def test_a_newer_owners_transaction_is_left_alone() -> None:
    """The catalog is read again first: after a take-over there is nothing of ours to end."""
    task = Task()
    task.engine.transaction_may_be_open = True
    task.catalog.refresh.side_effect = FencedError("Newer.")
    task.stop.finish()
    task.ending.abort_transactions()
    assert task.fenced == []


def test_a_broker_that_is_away_hinders_no_end() -> None:
    """The transaction then ends by its time-out."""
    task = Task()
    task.away = UnreachableError("Away.")
    task.engine.transaction_may_be_open = True
    task.stop.finish()
    task.ending.abort_transactions()


def _step(work: Callable[[threading.Event], object]) -> tuple[CancellableJob, Mock]:
    context = Mock()
    return CancellableJob(cast("Any", SimpleNamespace(sparkContext=context)), "step", work), context


@pytest.mark.parametrize("what", ["fold", "publish"])
def test_steps_of_once_can_be_cancelled(what: str) -> None:
    """A fold at once, a publish when its time is over: its jobs are cancelled, and what that breaks is no failure."""
    task, cancelled = Task(), threading.Event()

    def job(_: threading.Event) -> None:
        task.stop.drop(0)
        assert cancelled.wait(10)
        raise RuntimeError("Job cancelled")

    step, context = _step(job)
    context.cancelJobGroup.side_effect = lambda _: cancelled.set()
    assert not task.ending.run_step(step, what)
    assert task.maintenance.interrupt.called


def test_a_publish_of_once_may_end_in_its_time() -> None:
    """As any micro-batch; but no step follows it."""
    task, looked = Task(), threading.Event()

    def job(_: threading.Event) -> None:
        task.stop.drop(6_000)
        assert looked.wait(10)

    def early() -> int:
        looked.set()
        return 5_900

    step, context = _step(job)
    context.cancelJobGroup.side_effect = lambda _: looked.set()
    task.clock.monotonic_ms = early  # type: ignore[method-assign]
    assert not task.ending.run_step(step, "publish")
    assert not context.cancelJobGroup.called
    step, _ = _step(lambda _: pytest.fail("no step begins after a stop"))
    assert not task.ending.run_step(step, "fold")


def test_what_a_step_fails_with_is_raised() -> None:
    """It was not stopped, so it is the connector's failure; one that ends well is done."""
    step, _ = _step(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Task().ending.run_step(step, "fold")
    step, _ = _step(lambda _: None)
    assert Task().ending.run_step(step, "fold")
