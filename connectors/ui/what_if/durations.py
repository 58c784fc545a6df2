"""Writes a duration as a person does, without loss, and reads one that was typed. Pure."""

from __future__ import annotations

import re
from typing import Final

from compactor.settings import FOREVER

NEVER: Final = "never"
_UNITS: Final = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000, "ms": 1}
_NAMES: Final = {"day": "d", "days": "d", "hour": "h", "hours": "h", "m": "min", "minutes": "min", "sec": "s"}
_PIECE: Final = re.compile(r"([0-9]{1,19})\s*([a-z]+)\s*")
_MS: Final = re.compile(r"[0-9]{1,19}")
FORMS: Final = "Write 1 h 30 min, 90 s, never, or digits alone, which are ms."
"""How to write a duration."""


def written(ms: int) -> str:
    """Returns `ms` with every unit that it takes, "0" for none, and "never" for FOREVER."""
    if ms >= FOREVER:
        return NEVER
    parts: list[str] = []
    for name, size in _UNITS.items():
        if ms >= size:
            parts.append(f"{ms // size} {name}")
            ms %= size
    return " ".join(parts) or "0"


def read(text: str) -> int | None:
    """Returns the ms of a duration such as `1 h 30 min`, of digits alone as ms; None if it is none.

    A number among others has a unit: `1h30` and `10 000` may mean several things, so they are none.
    """
    wanted = text.strip().lower()
    if wanted == NEVER:
        return FOREVER
    total = int(wanted) if _MS.fullmatch(wanted) else _sum(wanted)
    return None if total is None or total > FOREVER else total


def _sum(text: str) -> int | None:
    total, at = 0, 0
    while piece := _PIECE.match(text, at):
        size = _UNITS.get(_NAMES.get(piece[2], piece[2]))
        if size is None:
            return None
        total, at = total + int(piece[1]) * size, piece.end()
    return total if at == len(text) > 0 else None
