"""Which consumers are kept between tasks, and for how long, with consumers that only note their end."""

from __future__ import annotations

from typing import Any, cast

import pytest

from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.consumers import KEPT_MS, ConsumerPool
from tests.support.clocks import ManualClock

FIRST, SECOND = (ClientSettings({"bootstrap.servers": name}) for name in ("first:9092", "second:9092"))


class Idle:
    """A consumer that only notes its end."""

    def __init__(self, made: Made) -> None:
        self._made = made

    def assign(self, _: object) -> None:
        """Reads nothing."""

    def close(self) -> None:
        self._made.closed.append(self)


class Made:
    """A pool whose consumers note in which order they end."""

    def __init__(self) -> None:
        self.closed: list[object] = []
        self.clock = ManualClock()
        self.pool = ConsumerPool(lambda *_: cast("Any", Idle(self)), self.clock)

    def use(self, clients: ClientSettings) -> object:
        with self.pool.borrowed(clients, 1.0) as found:
            return found


@pytest.fixture
def made() -> Made:
    return Made()


def test_a_consumer_is_kept_for_the_next_task(made: Made) -> None:
    """With the same settings it is the same; with others another."""
    one = made.use(FIRST)
    assert made.use(FIRST) is one
    assert made.use(SECOND) is not one
    assert made.closed == []


def test_one_that_nobody_wants_is_closed(made: Made) -> None:
    """Its connector has other settings since: its connections and threads end, those in use stay."""
    one, other = made.use(FIRST), made.use(SECOND)
    assert made.use(SECOND) is other
    assert made.closed == []
    made.clock.advance(KEPT_MS // 2)
    assert made.use(SECOND) is other
    made.clock.advance(KEPT_MS // 2 + 1)
    assert made.use(SECOND) is other
    assert made.closed == [one]


def test_a_consumer_whose_task_failed_is_not_kept(made: Made) -> None:
    """What it still does is not known."""
    with pytest.raises(ValueError, match="torn"), made.pool.borrowed(FIRST, 1.0) as one:
        raise ValueError("torn")
    assert made.closed == [one]
    assert made.use(FIRST) is not one
