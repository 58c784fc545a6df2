"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from connectors.counted import counted


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (1_000, "1,000 files"), (-1, "-1 files")]
)
def test_a_number_has_its_noun(number: int, text: str) -> None:
    """Only one is one."""
    assert counted(number, "file") == text


def test_a_plural_may_be_said() -> None:
    """A verb goes along with its noun."""
    assert [counted(number, "key has", "keys have") for number in (1, 2)] == ["1 key has", "2 keys have"]
