"""Which consumers are kept between tasks, and for how long, with consumers that only note their end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.kafka import consumers
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.consumers import AssignedConsumer, borrowed, close_idle

FIRST, SECOND = (ClientSettings({"bootstrap.servers": name}) for name in ("first:9092", "second:9092"))


class Made:
    """Consumers in the order in which they were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed: list[AssignedConsumer] = []

        def close(consumer: AssignedConsumer) -> None:
            self.closed.append(consumer)

        monkeypatch.setattr(AssignedConsumer, "__init__", lambda *_: None)
        monkeypatch.setattr(AssignedConsumer, "assign", lambda *_: None)
        monkeypatch.setattr(AssignedConsumer, "close", close)

    def use(self, clients: ClientSettings) -> AssignedConsumer:
        with borrowed(clients, 1.0) as found:
            return found


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    close_idle()
    yield Made(monkeypatch)
    close_idle()


def test_a_consumer_is_kept_for_the_next_task(made: Made) -> None:
    """With the same settings it is the same; with others another."""
    one = made.use(FIRST)
    assert made.use(FIRST) is one
    assert made.use(SECOND) is not one
    assert made.closed == []


def test_one_that_nobody_wants_is_closed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connector has other settings since: its connections and threads end, those in use stay."""
    one, other = made.use(FIRST), made.use(SECOND)
    assert made.use(SECOND) is other
    assert made.closed == []
    monkeypatch.setattr(consumers, "KEPT_S", 0.0)
    assert made.use(SECOND) is other
    assert made.closed == [one]


def test_a_consumer_whose_task_failed_is_not_kept(made: Made) -> None:
    """What it still does is not known."""
    with pytest.raises(ValueError, match="torn"), borrowed(FIRST, 1.0) as one:
        raise ValueError("torn")
    assert made.closed == [one]
    assert made.use(FIRST) is not one
