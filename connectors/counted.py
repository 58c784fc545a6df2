"""Words a number with its noun: `1 file`, `2 files`. Pure."""

from __future__ import annotations


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Returns a number with commas between thousands, and its noun; `plural` if that is not `singular` with an s."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
