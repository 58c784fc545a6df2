"""Of the chains of one process one computes at a time, each has its turn, and what waits has none."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from connectors.chain_turns import BREATH_S, SLICE_S, ChainTurn, ChainTurns
from connectors.errors import PortionLateError
from connectors.registry.patience import Patience
from tests.support.kafka import wait_until

TIMEOUT_S = 30.0


def never() -> bool:
    return False


class Waiting:
    """Threads that wait for a turn of `turns`; `came` has their names in the order in which they had it."""

    def __init__(self, turns: ChainTurns) -> None:
        self.turns = turns
        self.came: list[str] = []
        self._threads: list[threading.Thread] = []

    def add(self, name: str, *, urgent: bool, stopped: Callable[[], bool] = never) -> threading.Thread:
        """Adds one at the end of its line."""
        before = self.turns.waiting

        def wait() -> None:
            if self.turns.take(stopped, urgent=urgent):
                self.came.append(name)
                self.turns.give()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        self._threads.append(thread)
        wait_until(lambda: self.turns.waiting > before, f"{name} waits", TIMEOUT_S)
        return thread

    def end(self) -> None:
        """Gives the turn away and waits until each has had it."""
        self.turns.give()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()


def test_both_lines_have_their_turns_and_each_its_order() -> None:
    """What a micro-batch waits for passes what is read apart, and does not hold it up for good."""
    turns = ChainTurns()
    assert turns.take(never, urgent=False)
    waiting = Waiting(turns)
    for name in ("apart 1", "apart 2", "apart 3"):
        waiting.add(name, urgent=False)
    for name in ("batch 1", "batch 2"):
        waiting.add(name, urgent=True)
    waiting.end()
    assert waiting.came == ["batch 1", "apart 1", "batch 2", "apart 2", "apart 3"]
    assert turns.take(never, urgent=False)


def test_who_is_stopped_waits_no_longer_and_leaves_the_turn_to_others() -> None:
    """A pause, or the end of a worker, does not wait for the chains of others."""
    turns, stop = ChainTurns(), threading.Event()
    assert turns.take(never, urgent=False)
    waiting = Waiting(turns)
    stopped = waiting.add("stopped", urgent=False, stopped=stop.is_set)
    waiting.add("other", urgent=False)
    stop.set()
    stopped.join(TIMEOUT_S)
    assert not stopped.is_alive()
    waiting.end()
    assert waiting.came == ["other"]


class Slices:
    """A chain's turn with a clock that is set; `paused` has the seconds of each pause."""

    def __init__(self) -> None:
        self.turns, self.now = ChainTurns(), 0.0
        self.paused: list[float] = []
        self.turn = ChainTurn(self.turns, now=lambda: self.now, pause=self.paused.append)
        assert self.turn.begin()


@pytest.mark.parametrize(("seconds", "came"), [(SLICE_S / 2, []), (SLICE_S, ["other"])])
def test_a_turn_that_has_lasted_is_given_to_who_waits(seconds: float, came: list[str]) -> None:
    """And not earlier: it costs a switch of threads."""
    slices = Slices()
    waiting = Waiting(slices.turns)
    waiting.add("other", urgent=False)
    for _ in range(2):
        slices.now += seconds / 2
        assert slices.turn.look()
    assert waiting.came == came
    assert slices.turn.end()
    slices.turns.take(never, urgent=False)
    waiting.end()


@pytest.mark.parametrize(("seconds", "paused"), [(SLICE_S / 2, []), (SLICE_S, [BREATH_S])])
def test_after_a_long_call_all_other_threads_have_a_moment(seconds: float, paused: list[float]) -> None:
    """It may have held Python's lock all the time, and the next record may bring the next one."""
    slices = Slices()
    slices.now += seconds
    assert slices.turn.look()
    slices.now += SLICE_S / 2
    assert slices.turn.look()
    assert slices.paused == paused


def test_a_chain_that_waits_for_a_registry_has_no_turn_meanwhile() -> None:
    """Others compute while it waits, and it has its turn again when it goes on."""
    turns = ChainTurns()
    patience = Patience(turn=ChainTurn(turns))
    with patience.working():
        with patience.waiting():
            assert turns.take(never, urgent=False)
            turns.give()
        waiting = Waiting(turns)
        waiting.add("other", urgent=False)
        assert waiting.came == []
    waiting.end()


def test_a_chain_that_is_stopped_before_its_turn_is_late() -> None:
    """Nothing is known of its records."""
    turns = ChainTurns()
    assert turns.take(never, urgent=False)
    patience = Patience(turn=ChainTurn(turns, lambda: True))
    with pytest.raises(PortionLateError), patience.working():
        raise AssertionError("It has no turn.")
    turns.give()
    assert turns.take(never, urgent=False)
