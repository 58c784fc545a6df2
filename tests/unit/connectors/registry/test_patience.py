"""A portion's chain waits for registries, and works, no longer than it may."""

from __future__ import annotations

import math

import httpx
import pytest

from connectors.clock import LoopClock
from connectors.errors import PortionLateError, RegistryError
from connectors.options import read
from connectors.registry.patience import Patience
from connectors.registry.schema_registry import LIMIT_S, SchemaRegistry
from connectors.registry.settings import OPTIONS, registry_settings
from tests.support.clocks import ManualClock
from tests.support.memory.schema_registry import MemoryRegistry

SCHEMA = '{"type":"string"}'


class Slow(MemoryRegistry):
    """Answers `takes_s` after it was asked; not at all where less is waited for."""

    def __init__(self, clock: ManualClock, takes_s: float) -> None:
        super().__init__()
        self.clock, self.takes_s = clock, takes_s

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Takes its time."""
        waits_s = request.extensions["timeout"]["read"]
        self.clock.advance(round(min(waits_s, self.takes_s) * 1000))
        if waits_s < self.takes_s:
            raise httpx.ReadTimeout("late")
        return super().handle_request(request)


def registry(memory: Slow) -> SchemaRegistry:
    settings = registry_settings(read(OPTIONS, {"schema.registry.url": "http://a:1"}))
    return SchemaRegistry(settings, transport=memory, clock=memory.clock)


def test_answers_that_are_each_in_time_are_late_together() -> None:
    """Ten of 4 s, each within the 5 s of one question, are waited for as long as the portion may, not 40 s."""
    memory = Slow(ManualClock(0), 4.0)
    client = registry(memory)
    client.patience = Patience(wait_s=10.0, clock=memory.clock)
    for number in (memory.add(SCHEMA), memory.add('"int"')):
        client.schema(number)
    with pytest.raises(PortionLateError, match="not answer all questions within 10 s"):
        client.schema(memory.add('"long"'))
    assert memory.clock.at_ms == pytest.approx(10_000, abs=10)
    with pytest.raises(PortionLateError):
        client.schema(memory.add('"bytes"'))
    assert len(memory.asked) == 2


def test_what_is_known_is_never_late() -> None:
    """A portion all of whose schemas are known waits for nothing, and needs no patience."""
    memory = Slow(ManualClock(0), 4.0)
    client, number = registry(memory), memory.add(SCHEMA)
    client.schema(number)
    client.patience = Patience(wait_s=0.0, clock=memory.clock)
    assert client.schema(number).text == SCHEMA
    with pytest.raises(RegistryError, match="asks none") as error:
        client.schema(memory.add('"int"'))
    assert not isinstance(error.value, PortionLateError), "no other connector has waited for it"
    assert memory.clock.at_ms == 4_000


def test_a_registry_that_is_away_is_no_late_portion() -> None:
    """Where the question had all of its time, the registry is at fault; where the portion's was shorter, it is late."""
    for wait_s, expected in ((math.inf, RegistryError), (LIMIT_S / 2, PortionLateError)):
        memory = Slow(ManualClock(0), math.inf)
        client = registry(memory)
        client.patience = Patience(wait_s=wait_s, clock=memory.clock)
        with pytest.raises(RegistryError) as error:
            client.schema(1)
        assert type(error.value) is expected
        assert memory.clock.at_ms == pytest.approx(min(LIMIT_S, wait_s) * 1000, abs=10)


def test_work_counts_as_late_only_in_all() -> None:
    """Many records may take longer than a registry; waiting is part of the time in all."""
    clock = ManualClock(0)
    patience = Patience(wait_s=1.0, total_s=5.0, clock=clock)
    clock.advance(4_500)
    patience.check()
    with patience.waiting():
        clock.advance(600)
    assert patience.left_s == pytest.approx(0.4)
    with pytest.raises(PortionLateError, match="longer than others can wait"):
        patience.check()


def test_a_stop_leaves_nothing_to_wait_for() -> None:
    """Neither the next question nor the next record is begun."""
    stopped: list[int] = []
    patience = Patience(stopped=lambda: bool(stopped))
    patience.check()
    assert patience.left_s == math.inf
    stopped.append(1)
    assert patience.left_s == 0.0
    with pytest.raises(PortionLateError, match="stopped"):
        patience.check()
    with pytest.raises(PortionLateError, match="stopped"), patience.waiting():
        pass


def test_time_that_the_worker_lost_makes_no_portion_late() -> None:
    """Neither its work nor its waits count what passed while nothing of the worker ran."""
    clock = ManualClock(0)
    running = LoopClock(100, clock=clock)
    patience = Patience(wait_s=1.0, total_s=1.0, clock=running)
    clock.advance(6_000)
    patience.check()
    with patience.waiting():
        clock.advance(50)
        running.look()
    assert patience.left_s == pytest.approx(1.0)
    patience.check()


@pytest.mark.parametrize("stall_ms", [0, 60, 900])
def test_a_registry_that_drips_is_late_though_the_worker_stalls(stall_ms: int) -> None:
    """A byte now and then, in a worker that stands still between them, is waited for as long as may be forgiven."""
    clock = ManualClock(0)
    running = LoopClock(100, 5_000, clock)
    patience = Patience(wait_s=1.0, total_s=math.inf, clock=running)

    def drip() -> None:
        while True:
            with patience.waiting():
                clock.advance(50 + stall_ms)
                running.look()

    with pytest.raises(PortionLateError, match="did not answer"):
        drip()
    assert clock.at_ms <= 6_000 + 2 * (50 + stall_ms)


def test_work_that_stops_the_worker_counts_for_its_chain() -> None:
    """One call that keeps all threads from running is no stall that somebody else has caused."""
    clock, worked = ManualClock(0), [3.0]
    patience = Patience(total_s=1.0, clock=LoopClock(100, clock=clock), worked_s=lambda: worked[0])
    worked[0] += 0.9
    patience.check()
    clock.advance(8_000)
    worked[0] += 7.0
    with pytest.raises(PortionLateError, match="longer than others can wait"):
        patience.check()
