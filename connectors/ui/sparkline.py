"""Draws samples as a small line, in SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from markupsafe import Markup

from connectors.ui.history import EVERY_MS

POINTS: Final = 60
"""Points that a line has at most: what a person can tell apart, in 500 bytes. After an hour each is of a minute."""
MOST_LINES: Final = 250
"""Lines that are kept drawn, some 10 KB each: those of two overviews. To draw one takes 60 µs."""
_HEIGHT: Final = 24
_WIDTH: Final = 120


def points(values: Sequence[float]) -> list[float]:
    """Returns the most of each few samples, as few as lead to POINTS, the newest last."""
    each = max(1, -(-len(values) // POINTS))
    first = len(values) % each
    groups = [values[:first]] if first else []
    groups += [values[at : at + each] for at in range(first, len(values), each)]
    return [max(group) for group in groups]


def minutes(values: Sequence[float]) -> int:
    """Returns for how long (min) the samples go back."""
    return max(1, len(values) * EVERY_MS // 60_000)


def number(value: float) -> str:
    """Returns an amount with as many digits as a person reads."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def sparkline(values: Sequence[float], what: str) -> Markup:
    """Returns the line of `values`; its words say `what` they are, how much is now, and how much was at most."""
    return _line(tuple(values), what)


@lru_cache(maxsize=MOST_LINES)
def _line(values: tuple[float, ...], what: str) -> Markup:
    """Draws a line once: a connector's page is made every two seconds, and a sample comes every ten."""
    drawn = points(values)
    if len(drawn) < 2:
        return Markup('<span class="muted">—</span>')
    most = max(drawn) or 1.0
    step = _WIDTH / (len(drawn) - 1)
    line = " ".join(
        f"{step * at:.1f},{_HEIGHT - 2 - (_HEIGHT - 4) * value / most:.1f}" for at, value in enumerate(drawn)
    )
    label = f"{what}, last {minutes(values)} min: now {number(values[-1])}, at most {number(max(drawn))}"
    return Markup(
        '<svg class="spark" viewBox="0 0 {0} {1}" preserveAspectRatio="none" role="img" aria-label="{2}">'
        '<title>{2}</title><polygon class="under" points="{3} {0},{1} 0,{1}"/><polyline points="{3}"/></svg>'
    ).format(_WIDTH, _HEIGHT, label, line)
