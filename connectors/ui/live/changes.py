"""Says what of a page has changed since it was sent last, so that nothing is sent twice. Pure.

A template marks what is renewed by `<!--live-->` and `<!--/live-->`, and within it parts by `<!--part-->` and
`<!--/part-->`: each an element with an id. Text that a template writes has no such mark, as it is escaped.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Struct

BEGIN: Final = "<!--live-->"
END: Final = "<!--/live-->"
_PART_BEGIN: Final = "<!--part-->"
_PART_END: Final = "<!--/part-->"
_ID: Final = re.compile(r'\s*<\w+ id="([^"]+)"')


class RenewedText(Struct, frozen=True):
    """What is renewed of a page: all of it, the parts within it, and in `frame` the rest with the parts' ids."""

    whole: str
    parts: tuple[str, ...]
    frame: tuple[str, ...]


def renewed(page: str) -> RenewedText:
    """Returns what is renewed of a page's HTML. Raises ValueError if the page does not say that.

    It is cut at the marks as fixed texts: an expression for a whole part took as long as all else of a page.
    """
    begin, end = page.index(BEGIN), page.index(END)
    whole = page[begin:end]
    first, *others = whole.split(_PART_BEGIN)
    parts, frame = [], [first]
    for each in others:
        part, mark, rest = each.partition(_PART_END)
        named = _ID.match(part)
        if named is None or not mark:
            raise ValueError("a part of the page has no id or no end")
        parts.append(part)
        frame += (named[1], rest)
    return RenewedText(whole, tuple(parts), tuple(frame))


def change(before: RenewedText | None, now: RenewedText) -> bytes:
    """Returns the event that makes `before` into `now`: those parts that differ, or all; nothing if none does."""
    if before is None or before.frame != now.frame:
        return everything(now)
    changed = [part for part, old in zip(now.parts, before.parts, strict=True) if part != old]
    return event("parts", changed) if changed else b""


def everything(now: RenewedText) -> bytes:
    """Returns the event that has all of it."""
    return event("whole", now.whole)


def event(kind: str, data: object) -> bytes:
    """Returns an event as browsers read it (server-sent events), its data as JSON, which is one line."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(data))
