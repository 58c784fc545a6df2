"""When what failed is tried again."""

from __future__ import annotations

import pytest

from compactor import backoff

MINUTE = 60_000


@pytest.mark.parametrize(
    ("failures", "wait_ms"),
    [(1, MINUTE), (2, 2 * MINUTE), (6, 32 * MINUTE), (7, 60 * MINUTE), (40, 60 * MINUTE)],
)
def test_each_failure_waits_twice_as_long(failures: int, wait_ms: int) -> None:
    """A minute at first, an hour at most."""
    assert backoff.next_try_ms(failures, 1000) == 1000 + wait_ms


@pytest.mark.parametrize(
    ("ahead", "waits"), [(-1, False), (0, False), (1, True), (60 * MINUTE, True), (60 * MINUTE + 1, False)]
)
def test_nothing_waits_for_longer_than_an_hour(ahead: int, waits: bool) -> None:
    """A clock that was set back would let a time lie far ahead: then it is tried now."""
    assert backoff.waits(1_000_000_000 + ahead, 1_000_000_000) is waits
