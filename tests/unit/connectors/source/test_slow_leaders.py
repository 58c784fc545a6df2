"""Connectors whose leader answers slowly are asked for alone, and hold up no other."""

from __future__ import annotations

import threading
from typing import Any, cast

from compactor.model.record import TopicPartition
from tests.support.clocks import ManualClock
from tests.support.kafka import wait_until
from tests.support.polled import A0, TIMEOUT_S, Begun, Planned, PollingWorker, options
from tests.support.thread_limit import no_thread_named


class Slow(Begun):
    """A connector whose leader takes 5 s for each answer, by `clock`; it is asked for one after the other."""

    def __init__(self, clock: ManualClock) -> None:
        self.options = options("slow", "a")
        self.clock = clock
        self.plannable = True
        self.slow = True
        self.plans = 0

    def partitions(self) -> list[TopicPartition]:
        return [A0] if self.plannable else []

    def plan(self) -> bool:
        self.plans += 1
        self.clock.advance(5_000 if self.plannable and self.slow else 0)
        return False


class _Held(Begun):
    """A slow connector, which is answered once `held` lets it."""

    plannable = True

    def __init__(self, held: threading.Semaphore) -> None:
        self._held = held
        self.plans = 0

    def partitions(self) -> list[TopicPartition]:
        return []

    def plan(self) -> bool:
        self.plans += 1
        assert self._held.acquire(timeout=TIMEOUT_S)
        return False


def test_a_slow_connector_is_asked_alone_until_its_own_answer_is_quick(worker: PollingWorker) -> None:
    """Also while nothing is to be asked for it: that it was quick then says nothing of its leader."""
    clock = ManualClock()
    poller = worker.poller(clock)
    slow, other = Slow(clock), Planned()
    for one in (slow, other):
        poller.add(cast("Any", one))

    def together() -> int:
        """Polls once; returns how many connectors were asked for together."""
        poller.poll()
        found = len(poller._lists)
        wait_until(lambda: not poller._asking, "those that are asked alone are answered", TIMEOUT_S)
        return found

    assert together() == 2
    wait_until(lambda: together() == 1, "the other is quick by itself", TIMEOUT_S)
    slow.plannable = False
    assert [together() for _ in range(3)] == [1, 1, 1]
    slow.plannable, slow.slow = True, False
    wait_until(lambda: together() == 2, "both are asked together again", TIMEOUT_S)


def test_a_slow_connector_without_a_thread_has_another_turn(worker: PollingWorker) -> None:
    """Those that are asked for together go on, and it does not fail."""
    clock = ManualClock()
    poller = worker.poller(clock)
    slow, other = Slow(clock), Planned()
    poller.add(cast("Any", slow))
    poller.poll()
    poller.add(cast("Any", other))
    with no_thread_named("source-poller-slow"):
        poller.poll()
    assert (slow.plans, other.plans) == (1, 1)
    poller.poll()
    wait_until(lambda: slow.plans > 1, "it is asked for", TIMEOUT_S)


def test_few_slow_connectors_are_asked_at_a_time_and_each_gets_its_turn(worker: PollingWorker) -> None:
    """One waits for one of four threads, and goes behind the others, as long as its leader is slow."""
    clock = ManualClock()
    poller = worker.poller(clock)
    held = threading.Semaphore(0)
    many = [_Held(held) for _ in range(6)]
    for one in many:
        poller.add(cast("Any", one))
    poller._slow = dict.fromkeys(cast("Any", many))

    def round_of_four() -> None:
        before = sum(one.plans for one in many)
        for _ in range(3):
            poller.poll()
        wait_until(lambda: sum(one.plans for one in many) == before + 4, "four are asked", TIMEOUT_S)
        clock.advance(5_000)
        held.release(4)
        wait_until(lambda: not poller._asking, "they are answered", TIMEOUT_S)

    for rounds in (1, 2):
        round_of_four()
        round_of_four()
        assert min(one.plans for one in many) >= rounds
