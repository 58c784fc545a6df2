"""How long the sessions of buckets are kept from one publish to the next; without brokers."""

from __future__ import annotations

from unittest.mock import Mock

from connectors.sinks.publisher import KEPT_MS, KeptSessions
from tests.support.clocks import ManualClock


def test_sessions_are_dropped_once_nobody_has_used_them_for_long() -> None:
    """Not before: a connector with a record now and then keeps its producers. And one that comes later is kept."""
    clock = ManualClock(0)
    kept, session, later = KeptSessions(clock), Mock(), Mock()
    clock.advance(100_000)
    kept.put(0, session)
    clock.advance(KEPT_MS)
    kept.drop_unused()
    assert not session.drop_producer.called
    clock.advance(1)
    kept.drop_unused()
    assert session.drop_producer.called
    assert kept.take(0) is None
    kept.put(0, later)
    kept.drop_unused()
    assert kept.take(0) is later
