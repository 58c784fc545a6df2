"""Writes a duration as a person does, without loss, and reads one that was typed. Pure."""

from __future__ import annotations

import re
from typing import Final

from compactor.settings import FOREVER

NEVER: Final = "never"
_UNITS: Final = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000, "ms": 1}
_NAMES: Final = {"day": "d", "days": "d", "hour": "h", "hours": "h", "m": "min", "minutes": "min", "sec": "s"}
_PIECE: Final = re.compile(r"([0-9]{1,19})\s*([a-z]*)\s*")


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
    """Returns the ms of a duration such as `1 h 30 min`, of a number alone as ms; None if it is none."""
    wanted = text.strip().lower()
    if wanted == NEVER:
        return FOREVER
    total, at = 0, 0
    while piece := _PIECE.match(wanted, at):
        name = piece[2] or "ms"
        size = _UNITS.get(_NAMES.get(name, name))
        if size is None:
            return None
        total, at = total + int(piece[1]) * size, piece.end()
    return total if at == len(wanted) > 0 and total <= FOREVER else None
