"""Draws samples as a small line, in SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from connectors.ui.history import EVERY_MS, MOST_SAMPLES

POINTS: Final = 60
"""Points of a line, each the most of a minute: what a person can tell apart, in some 500 bytes."""
_HEIGHT: Final = 24
_WIDTH: Final = 120
_EACH: Final = MOST_SAMPLES // POINTS


def points(values: Sequence[float]) -> list[float]:
    """Returns the most of each minute, the newest last; a minute that is not over counts as it is."""
    first = len(values) % _EACH
    groups = [values[:first]] if first else []
    groups += [values[at : at + _EACH] for at in range(first, len(values), _EACH)]
    return [max(group) for group in groups][-POINTS:]


def number(value: float) -> str:
    """Returns an amount with as many digits as a person reads."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def sparkline(values: Sequence[float], what: str) -> Markup:
    """Returns the line of `values`; its words say `what` they are, how much is now, and how much was at most."""
    drawn = points(values)
    minutes = len(values) * EVERY_MS // 60_000
    if len(drawn) < 2:
        return Markup('<span class="muted">—</span>')
    most = max(drawn) or 1.0
    step = _WIDTH / (POINTS - 1)
    start = _WIDTH - step * (len(drawn) - 1)
    line = " ".join(
        f"{start + step * at:.1f},{_HEIGHT - 2 - (_HEIGHT - 4) * value / most:.1f}" for at, value in enumerate(drawn)
    )
    label = f"{what}, last {minutes} min: now {number(values[-1])}, at most {number(max(drawn))}"
    return Markup(
        '<svg class="spark" viewBox="0 0 {0} {1}" preserveAspectRatio="none" role="img" aria-label="{2}">'
        '<title>{2}</title><polygon class="under" points="{3} {0},{1} {4:.1f},{1}"/><polyline points="{3}"/></svg>'
    ).format(_WIDTH, _HEIGHT, label, line, start)
