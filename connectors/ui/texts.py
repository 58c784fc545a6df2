"""Words values for people: counts, bytes, ages and times. No text gets into a page but as `shown` makes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeVar

from markupsafe import Markup, escape

from compactor.model.times import moment
from connectors.terminal_text import printable

T = TypeVar("T")

LONGEST: Final = 8_000
"""Characters that any text may have in a page: an error that names a few hundred topics."""
NOTHING: Final = "—"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEPS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)\s]*\)")
_CODE: Final = re.compile(r"`([^`]+)`")
_STRONG: Final = re.compile(r"\*\*([^*]+)\*\*")


def shown(value: object) -> object:
    """Returns what a template writes for `value`: of a text at most LONGEST characters, all of them printable.

    Control characters and those that turn the order of what is read are written as Python writes them.
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return NOTHING if value is None else value
    return bounded(printable(value), LONGEST)


def bounded(text: str, most: int) -> str:
    """Returns at most `most` characters of a text; what is left out is said by an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def page_of(items: Sequence[T], page: int, most: int) -> tuple[tuple[T, ...], int, int]:
    """Returns the items of a page of `most`, its number, and that of the last page, which is shown for any after it."""
    pages = max(1, -(-len(items) // most))
    number = min(max(1, page), pages)
    return tuple(items[(number - 1) * most : number * most]), number, pages


def first_line(text: str | None, most: int = 240) -> str | None:
    """Returns the first line of a text, of at most `most` characters; None for None."""
    return None if text is None else bounded(text.strip().partition("\n")[0], most)


def brief_error(text: str | None, most: int = 240) -> str | None:
    """Returns the first line of an error, of at most `most` characters; None for None.

    What is left out is in its middle: errors end with what to do, and what they quote stands before that.
    """
    if text is None:
        return None
    line = text.strip().partition("\n")[0]
    if len(line) <= most:
        return line
    end = line[-(most // 2) :]
    end = end.partition(". ")[2] or end.partition(" ")[2] or end  # of whole sentences, else words
    return f"{line[: most - len(end) - 3]} … {end}"


def count(number: int | None) -> str:
    """Returns a whole number with commas between thousands."""
    return NOTHING if number is None else f"{number:,}"


def size(number: float | None) -> str:
    """Returns bytes in the largest unit of which there is at least one."""
    if number is None:
        return NOTHING
    amount, unit = float(number), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 or amount >= 100 else f"{amount:.1f} {_UNITS[unit]}"


def duration(ms: float | None) -> str:
    """Returns a time in ms by its one or two largest units."""
    if ms is None:
        return NOTHING
    if ms < 1_000:
        return f"{ms:.0f} ms"
    whole = int(ms)
    at = next(place for place, (step, _) in enumerate(_STEPS) if whole >= step)
    parts = [f"{whole // _STEPS[at][0]} {_STEPS[at][1]}"]
    if at + 1 < len(_STEPS) and (rest := whole % _STEPS[at][0] // _STEPS[at + 1][0]):
        parts.append(f"{rest} {_STEPS[at + 1][1]}")
    return " ".join(parts)


def time_tag(at_ms: int | None, now_ms: int) -> Markup:
    """Returns how long ago `at_ms` was, as HTML that has the time itself too."""
    if at_ms is None:
        return Markup(NOTHING)  # noqa: S704  # a constant
    when = moment(at_ms)
    away = duration(abs(now_ms - at_ms))
    said = f"in {away}" if at_ms > now_ms else f"{away} ago"
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(when, said)


def within_tag(at_ms: int, now_ms: int) -> Markup:
    """Returns by when something is done that comes at `at_ms` or before, as HTML that has the time itself too."""
    when = moment(at_ms)
    said = f"within {duration(at_ms - now_ms)}" if at_ms - now_ms >= 1_000 else "at once"
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(when, said)


def clock_tag(at_ms: int) -> Markup:
    """Returns a time as HTML: date, and time of day in UTC."""
    when = moment(at_ms)
    return Markup('<time datetime="{}">{} UTC</time>').format(when, when.replace("T", " ").removesuffix("Z"))


def prose(text: str) -> Markup:
    """Returns a setting's meaning as HTML: code and what is strong in their marks, of links the words."""
    plain = str(escape(shown(_LINK.sub(r"\1", text))))
    return Markup(_STRONG.sub(r"<strong>\1</strong>", _CODE.sub(r"<code>\1</code>", plain)))  # noqa: S704  # escaped above
