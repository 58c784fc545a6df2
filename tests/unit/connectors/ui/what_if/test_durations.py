"""Durations as a person writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.settings import FOREVER
from connectors.ui.what_if.durations import read, written


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0"),
        (1, "1 ms"),
        (60_000, "1 min"),
        (5_400_000, "1 h 30 min"),
        (86_400_000 * 400 + 1, "400 d 1 ms"),
        (FOREVER, "never"),
    ],
)
def test_a_duration_has_every_unit_that_it_takes(ms: int, text: str) -> None:
    """Without loss, and never is no number of days."""
    assert written(ms) == text


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("250", 250),
        (" 1H30m ", 5_400_000),
        ("2 days", 172_800_000),
        ("90 s", 90_000),
        ("Never", FOREVER),
        ("0", 0),
        *[(none, None) for none in ("10 000", "86 400 000", "1h30", "1 30", "1 h 30", "30 1 h", "10,000", "1_000")],
        *[(none, None) for none in ("", "-1", "1.5 h", "h", "1 week", "1 h x", "9" * 20, "9" * 19 + " d", "1 h,", "²")],
    ],
)
def test_a_typed_duration_is_read_or_is_none(text: str, ms: int | None) -> None:
    """Digits alone are ms, and a number among others has a unit; what is more than a setting may have is none."""
    assert read(text) == ms


@given(st.integers(0, FOREVER))
def test_what_is_written_is_read_again(ms: int) -> None:
    """The page compares what was typed with what it had shown."""
    assert read(written(ms)) == ms
