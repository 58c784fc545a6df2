"""How many connectors have an offer at a time, and whose turn it is next."""

from __future__ import annotations

from typing import Any, cast

import pytest

from compactor.model.record import TopicPartition
from connectors.source.offer_turns import FEWEST, LONG_MS, most
from connectors.source.poller import SourcePoller
from tests.support.clocks import ManualClock
from tests.support.polled import A0, Begun, PollingWorker


class Offered(Begun):
    """A connector that has something new each time, and notes in `turns` when it was offered that."""

    def __init__(self, name: str, clock: ManualClock, turns: list[str]) -> None:
        self.name, self.clock, self.turns = name, clock, turns

    def partitions(self) -> list[TopicPartition]:
        return [A0] if self.is_idle else []

    def plan(self) -> bool:
        if not self.is_idle:
            return False
        self.is_idle, self.planned_ms = False, self.clock.monotonic_ms()
        self.turns.append(self.name)
        return True


@pytest.fixture
def turns() -> list[str]:
    """The names of connectors in the order of their offers."""
    return []


def offered_few(worker: PollingWorker, clock: ManualClock, turns: list[str]) -> tuple[SourcePoller, list[Offered]]:
    """Returns a poller that has polled once for three connectors more than have an offer at a time, and these."""
    poller = worker.poller(clock)
    many = [Offered(f"c{number}", clock, turns) for number in range(FEWEST + 3)]
    for connector in many:
        poller.add(cast("Any", connector))
    poller.poll()
    return poller, many


def test_few_connectors_have_an_offer_at_a_time(worker: PollingWorker, turns: list[str]) -> None:
    """Whoever has taken its portion makes room for the one that was offered something longest ago."""
    clock = ManualClock()
    poller, many = offered_few(worker, clock, turns)
    assert turns == [connector.name for connector in many[:FEWEST]]
    clock.advance(1)
    worker.brokers.asked.clear()
    poller.poll()
    assert (len(turns), worker.brokers.asked) == (FEWEST, [])  # nor are brokers asked for what nobody may have
    many[0].is_idle = many[1].is_idle = True
    poller.poll()
    assert turns[FEWEST:] == [connector.name for connector in many[FEWEST : FEWEST + 2]]
    many[2].is_idle = many[3].is_idle = True
    poller.poll()
    assert turns[FEWEST + 2 :] == [many[-1].name, many[0].name]


@pytest.mark.parametrize(
    ("connectors", "cores", "limit"), [(1, 1, FEWEST), (16, 2, FEWEST), (20, 2, 10), (100, 2, 50), (20, 16, 64)]
)
def test_cores_and_connectors_say_how_many_have_an_offer(connectors: int, cores: int, limit: int) -> None:
    """Where they wait for stores and not for cores, a limit that does not rise with them would slow many down."""
    assert most(connectors, cores) == limit


def test_an_offer_that_takes_long_keeps_nobody_waiting(worker: PollingWorker, turns: list[str]) -> None:
    """A store or a broker that is slow takes no processor: the others are offered what they have meanwhile."""
    clock = ManualClock()
    poller, many = offered_few(worker, clock, turns)
    clock.advance(LONG_MS - 1)
    poller.poll()
    assert len(turns) == FEWEST
    clock.advance(1)
    poller.poll()
    assert turns == [connector.name for connector in many]
