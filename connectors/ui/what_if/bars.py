"""Draws what stays and what goes of some records: bars in SVG, each with the words for who cannot see it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from markupsafe import Markup
from msgspec import Struct

from compactor.analyze.effect import Effect

WIDTH: Final = 1_000
_HEIGHT: Final = 24


class BarPart(Struct, frozen=True):
    """A part of a bar: the name of its style, its words, its amount, and its start and width of WIDTH."""

    style: str
    words: str
    amount: int
    start: float
    width: float


class Bar(Struct, frozen=True):
    """A bar: what it shows, how much of it stays and how much there is, and its parts."""

    label: str
    stays: int
    whole: int
    shares: tuple[BarPart, ...]

    @property
    def percent(self) -> str:
        """How much stays, as a person reads it."""
        return "0 %" if not self.whole else f"{100 * self.stays / self.whole:.1f} %"


PARTS: Final = (
    ("live", "live", "last records of their keys"),
    ("tombstones", "tombstones", "tombstones"),
    ("held", "held", "not to be folded yet"),
    ("unfolded", "unfolded", "not folded by key"),
    ("superseded", "gone superseded", "superseded by a later record"),
    ("expired", "gone expired", "tombstones past their horizon"),
    ("rejected", "gone rejected", "rejected, or without a key"),
    ("retention", "gone retention", "taken by retention"),
)
"""The fields of an Effect that add up to `before`, those that stay first; with the style and the words of each."""


def bar(label: str, effect: Effect, unit: str) -> Bar:
    """Returns the bar of an effect in `unit`, which is "records" or "bytes"."""
    whole = _amount(effect, "before", unit)
    return Bar(label, _amount(effect, "after", unit), whole, tuple(_shares(effect, unit, whole)))


def whole_bar(label: str, effect: Effect, unit: str) -> Bar:
    """Returns the bar of all that is kept before a fold, without parts."""
    amount = _amount(effect, "before", unit)
    shares = (BarPart("whole", "kept", amount, 0.0, float(WIDTH)),) if amount else ()
    return Bar(label, amount, amount, shares)


def _shares(effect: Effect, unit: str, whole: int) -> Iterator[BarPart]:
    start = 0.0
    for field, style, words in PARTS:
        amount = _amount(effect, field, unit)
        if amount > 0:
            width = WIDTH * amount / whole
            yield BarPart(style, words, amount, start, width)
            start += width


def _amount(effect: Effect, field: str, unit: str) -> int:
    number: int = getattr(getattr(effect, field), unit)
    return number


def legend(*effects: Effect) -> tuple[tuple[str, str], ...]:
    """Returns style and words of the parts that any of `effects` has."""
    return tuple(
        (style, words)
        for field, style, words in PARTS
        if any(getattr(effect, field).records or getattr(effect, field).bytes for effect in effects)
    )


def drawn(shown: Bar, unit: str) -> Markup:
    """Returns a bar as SVG; its words say each part in `unit`."""
    told = ", ".join(f"{each.words} {each.amount:,}" for each in shown.shares) or "none"
    parts = Markup("").join(
        Markup('<rect class="{}" x="{:.2f}" width="{:.2f}" height="{}"/>').format(
            each.style, each.start, each.width, _HEIGHT
        )
        for each in shown.shares
    )
    return Markup(
        '<svg class="stack" viewBox="0 0 {0} {1}" preserveAspectRatio="none" role="img" aria-label="{2}">'
        '<title>{2}</title><rect class="track" width="{0}" height="{1}"/>{3}</svg>'
    ).format(WIDTH, _HEIGHT, f"{shown.label}, {unit}: {told}", parts)
