"""A warning of what goes on happening comes at once, then after growing pauses, with the count since the last one."""

from __future__ import annotations

import pytest

from connectors.progress.rare_warnings import PAUSES_MS, RareWarnings, Warned, after_records
from tests.support.clocks import ManualClock

MINUTE, TEN_MINUTES, HOUR = PAUSES_MS


@pytest.mark.parametrize(
    ("before", "now_ms", "after", "stands_for"),
    [
        (None, 5, Warned(5 + MINUTE, 1, 0), 3),
        (Warned(100, 1, 2), 99, Warned(100, 1, 5), None),
        (Warned(100, 1, 4), 100, Warned(100 + TEN_MINUTES, 2, 0), 7),
        (Warned(100, 2, 4), 100, Warned(100 + HOUR, 3, 0), 7),
        (Warned(100, 9, 0), 900, Warned(900 + HOUR, 10, 0), 3),
    ],
    ids=["the first", "within its pause", "after the first pause", "after the second", "the last pause repeats"],
)
def test_a_warning_is_due_after_its_pause(
    before: Warned | None, now_ms: int, after: Warned, stands_for: int | None
) -> None:
    """Three records more, by the state before and the time."""
    assert after_records(before, 3, now_ms) == (after, stands_for)


def test_each_kind_has_pauses_of_its_own() -> None:
    """Another topic or class is warned of at once."""
    warnings = RareWarnings(ManualClock())
    assert [warnings.due(kind, 1) for kind in ("a", "a", "b")] == [1, None, 1]


def test_kinds_beyond_the_most_share_one_warning() -> None:
    """Kinds of which nothing has come for long make room; until then no more is remembered."""
    clock = ManualClock()
    warnings = RareWarnings(clock, most=2)
    assert [warnings.due(kind, 1) for kind in ("a", "b", "c", "d")] == [1, 1, 1, None]
    clock.advance(MINUTE + HOUR)
    assert [warnings.due(kind, 2) for kind in ("e", "a")] == [2, 2]
