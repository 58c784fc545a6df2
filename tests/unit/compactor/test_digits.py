"""Numbers in texts that others have written."""

from __future__ import annotations

import pytest

from compactor.digits import LARGEST, whole


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        (b"42", 42),
        ("007", 7),
        (str(LARGEST), LARGEST),
        (str(LARGEST + 1), None),
        ("9" * 5_000, None),
        ("0" * 5_000 + "1", None),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1_0", None),
        (" 1", None),
        ("²", None),
        ("٣", None),
        (b"\xb2", None),
    ],
)
def test_only_ascii_digits_of_a_long_are_a_number(text: str | bytes, number: int | None) -> None:
    """Python reads other alphabets' digits, underscores and blanks too, and refuses more than 4,300 digits."""
    assert whole(text) == number


def test_a_number_may_have_a_smaller_bound() -> None:
    """The bound itself is allowed."""
    assert (whole("7", 7), whole("8", 7)) == (7, None)
