"""How a life ends when it is told to stop; without Spark and brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from compactor.errors import FencedError
from connectors.errors import UnreachableError
from connectors.kafka import producers
from connectors.runtime.breakable import CancellableJob
from connectors.runtime.cancellation import StopToken
from connectors.runtime.shutdown import Shutdown
from tests.support.memory.storage import Clock


class Life:
    """What there is to end; `busy` is how many looks at the engine find it under way."""

    def __init__(self, busy: int = 0) -> None:
        self.clock = Clock(0)
        self.stop = StopToken()
        self.background = Mock()
        self.upkeep = Mock()
        self.engine = Mock(interrupted=False)
        self.engine.is_idle.side_effect = lambda: self._looks() > busy
        self.owned = SimpleNamespace(catalog=Mock())
        self.owned.catalog.refresh.return_value = SimpleNamespace(buckets=2)
        self._looked = 0

    @property
    def ending(self) -> Shutdown:
        connector = Mock(transactional_id=lambda bucket: f"c-{bucket}")
        return Shutdown(cast("Any", self), self.background, connector, Mock(), self.clock, self.stop)

    def _looks(self) -> int:
        self._looked += 1
        return self._looked


def test_the_micro_batch_under_way_may_end() -> None:
    """No other begins, and nobody waits longer than it takes."""
    life = Life(busy=20)
    life.stop.ask(break_at=6.0)
    life.ending.let_finish()
    assert life.engine.begin_close.called
    assert life.clock.monotonic() == pytest.approx(2.0)


@pytest.mark.parametrize("hurried", [False, True], ids=["told at first", "patient first"])
def test_one_that_does_not_end_in_time_is_left_to_be_broken_off(*, hurried: bool) -> None:
    """Also where a patient stop, which gives it all the time it takes, is followed by one in a hurry."""
    life = Life(busy=10**9)
    if hurried:
        life.stop.ask(patient=True)
        life.engine.begin_close.side_effect = lambda: life.stop.ask(break_at=6.0)
    else:
        life.stop.ask(break_at=6.0)
    life.ending.let_finish()
    assert life.clock.monotonic() == pytest.approx(6.0)


@pytest.mark.parametrize(("patient", "interrupted"), [(True, False), (False, True)])
def test_a_patient_stop_lets_a_fold_end(*, patient: bool, interrupted: bool) -> None:
    """Only what is to be broken off is told that its failing means nothing."""
    life = Life()
    life.stop.ask(patient=patient)
    life.ending.hurry()
    assert life.upkeep.interrupt.called is interrupted


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The transactional ids that were fenced."""
    found: list[tuple[str, ...]] = []
    monkeypatch.setattr(producers, "fence_all", lambda _, ids, __: found.append(tuple(ids)))
    return found


@pytest.mark.parametrize(
    ("stopped", "interrupted", "ids"), [(True, True, [("c-0", "c-1")]), (True, False, []), (False, True, [])]
)
def test_a_broken_off_transaction_is_ended(
    fenced: list[tuple[str, ...]], *, stopped: bool, interrupted: bool, ids: list[tuple[str, ...]]
) -> None:
    """Readers of the output would wait for it until its time-out; a life that goes on fences by itself (T2)."""
    life = Life()
    life.engine.transaction_may_be_open = interrupted
    if stopped:
        life.stop.ask()
    life.ending.abort_transactions()
    assert fenced == ids


def test_a_newer_owners_transaction_is_left_alone(fenced: list[tuple[str, ...]]) -> None:
    """The catalog is read again first: after a take-over there is nothing of ours to end."""
    life = Life()
    life.engine.transaction_may_be_open = True
    life.owned.catalog.refresh.side_effect = FencedError("Newer.")
    life.stop.ask()
    life.ending.abort_transactions()
    assert fenced == []


def test_a_broker_that_is_away_hinders_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction then ends by its time-out."""
    monkeypatch.setattr(producers, "fence_all", Mock(side_effect=UnreachableError("Away.")))
    life = Life()
    life.engine.transaction_may_be_open = True
    life.stop.ask()
    life.ending.abort_transactions()


def _step(work: Callable[[threading.Event], object]) -> tuple[CancellableJob, Mock]:
    context = Mock()
    return CancellableJob(cast("Any", SimpleNamespace(sparkContext=context)), "step", work), context


@pytest.mark.parametrize("what", ["fold", "publish"])
def test_steps_of_once_can_be_broken_off(what: str) -> None:
    """A fold at once, a publish when its time is over: its jobs are cancelled, and what that breaks is no failure."""
    life, cancelled = Life(), threading.Event()

    def job(_: threading.Event) -> None:
        life.stop.ask(break_at=0.0)
        assert cancelled.wait(10)
        raise RuntimeError("Job cancelled")

    step, context = _step(job)
    context.cancelJobGroup.side_effect = lambda _: cancelled.set()
    assert not life.ending.carry_out(step, what)
    assert life.upkeep.interrupt.called


def test_a_publish_of_once_may_end_in_its_time() -> None:
    """As any micro-batch; but no step follows it."""
    life, looked = Life(), threading.Event()

    def job(_: threading.Event) -> None:
        life.stop.ask(break_at=6.0)
        assert looked.wait(10)

    def early() -> float:
        looked.set()
        return 5.9

    step, context = _step(job)
    context.cancelJobGroup.side_effect = lambda _: looked.set()
    life.clock.monotonic = early  # type: ignore[method-assign]
    assert not life.ending.carry_out(step, "publish")
    assert not context.cancelJobGroup.called
    step, _ = _step(lambda _: pytest.fail("no step begins after a stop"))
    assert not life.ending.carry_out(step, "fold")


def test_what_a_step_fails_with_is_raised() -> None:
    """Nobody stopped it, so it is the connector's failure; one that ends well is done."""
    step, _ = _step(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Life().ending.carry_out(step, "fold")
    step, _ = _step(lambda _: None)
    assert Life().ending.carry_out(step, "fold")
