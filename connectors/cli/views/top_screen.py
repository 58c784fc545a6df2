"""Makes what `keyfold top` shows on a terminal: as many rows as fit, how old they are, and the keys. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from connectors.cli.views.top import KEYS, TopRow, TopSample, error_lines, first_line, table_lines
from connectors.progress.terminal import cut

HELP: Final = "sort: " + "  ".join(f"{key} {name}" for key, name in KEYS.items()) + "  q quit"
_KEY: Final = re.compile(rb"\x1b(?:\[[0-9;]*|O)([A-Za-z~])|(.)", re.DOTALL)
_PAGES: Final = {b"\x1b[5~": "page up", b"\x1b[6~": "page down"}
_ARROWS: Final = {b"A": "up", b"B": "down", b"H": "home", b"F": "end"}
_BELOW: Final = 3
"""Lines below table and errors: one that is empty, one on rows and worker, one with the keys."""


class TopSeen(Struct, frozen=True):
    """What a worker has said: the last sample and the one before it; and what came in place of a later one.

    `failed_at_ms` is when (ms that never fall) it first did not answer; None if it does.
    """

    now: TopSample
    before: TopSample | None = None
    failure: str | None = None
    failed_at_ms: int | None = None


def after(seen: TopSeen, outcome: TopSample | str, now_ms: int) -> TopSeen:
    """Returns what is seen after a sample, or after what was said in place of one."""
    if isinstance(outcome, TopSample):
        return TopSeen(outcome, seen.now)
    at_ms = now_ms if seen.failed_at_ms is None else seen.failed_at_ms
    return replace(seen, failure=first_line(outcome), failed_at_ms=at_ms)


def notice(seen: TopSeen, now_ms: int) -> str | None:
    """Returns the sentence that says that what is shown is old; None if it is not."""
    if seen.failure is None:
        return None
    return f"STALE for {(now_ms - seen.now.at_ms) // 1000} s, asking on: {seen.failure}"


def keys_in(pressed: bytes) -> list[str]:
    """Lists the keys that a terminal has sent: letters, and `up`, `down`, `page up`, `page down`, `home`, `end`."""
    keys = []
    for part in _KEY.finditer(pressed):
        named = _PAGES.get(part[0]) or _ARROWS.get(part[1] or b"")
        keys.append(named or (part[2] or b"").decode(errors="replace"))
    return [key for key in keys if key]


def moved(first: int, key: str, fitting: int, count: int) -> int:
    """Returns the first row to show after `key`, of `count` rows of which `fitting` fit."""
    last = max(count - fitting, 0)
    to = {
        "up": first - 1,
        "k": first - 1,
        "down": first + 1,
        "j": first + 1,
        "page up": first - fitting,
        "page down": first + fitting,
        " ": first + fitting,
        "home": 0,
        "end": last,
    }
    return min(max(to.get(key, first), 0), last)


def fitting_rows(shown: Sequence[TopRow], height: int) -> int:
    """Returns how many rows a terminal of `height` lines shows."""
    errors = _error_room(shown, height)
    return max(height - 1 - _BELOW - (errors + 1 if errors else 0), 1)


def _error_room(shown: Sequence[TopRow], height: int) -> int:
    """Returns how many errors are shown: at most a third of the lines, as the table is what was asked for."""
    return min(sum(row.error is not None for row in shown), max((height - _BELOW) // 3, 1))


def screen(shown: Sequence[TopRow], width: int, height: int, first: int = 0, said: str | None = None) -> str:
    """Returns the rows from `first` on, errors, which rows these are, what is `said`, and the keys."""
    headers, *lines = table_lines(shown, width)
    fitting, errors = fitting_rows(shown, height), error_lines(shown, width)[: _error_room(shown, height)]
    first = moved(first, "", fitting, len(lines))
    part = lines[first : first + fitting]
    rows = (
        f"{first + 1}-{first + len(part)} of {len(lines)}: arrows, Page Up, Page Down" if len(part) < len(lines) else ""
    )
    state = "; ".join(filter(None, [said, rows]))
    return "\n".join([headers, *part, *([""] if errors else []), *errors, "", cut(state, width), cut(HELP, width)])
