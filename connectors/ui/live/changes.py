"""Says what of a page has changed since it was sent last, so that nothing is sent twice. Pure.

A template marks what is renewed by `<!--live-->` and `<!--/live-->`, and within it parts by `<!--part-->` and
`<!--/part-->`: each an element with an id. Parts before it, in the head of the page, are renewed too. Text that a
template writes has no such mark, as it is escaped.
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
    """What is renewed of a page: all of it, the parts within it, and in `frame` the rest with the parts' ids.

    `head` has the parts before it.
    """

    head: tuple[str, ...]
    whole: str
    parts: tuple[str, ...]
    frame: tuple[str, ...]


def renewed(page: str) -> RenewedText:
    """Returns what is renewed of a page's HTML. Raises ValueError if the page does not say that.

    It is cut at the marks as fixed texts: an expression for a whole part took as long as all else of a page.
    """
    begin, end = page.index(BEGIN), page.index(END)
    head, _ = _cut(page[:begin])
    whole = page[begin:end]
    parts, frame = _cut(whole)
    return RenewedText(head, whole, parts, frame)


def _cut(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the parts of a text, and the rest with their ids. Raises ValueError if a part has no id or no end."""
    first, *others = text.split(_PART_BEGIN)
    parts, frame = [], [first]
    for each in others:
        part, mark, rest = each.partition(_PART_END)
        named = _ID.match(part)
        if named is None or not mark:
            raise ValueError("a part of the page has no id or no end")
        parts.append(part)
        frame += (named[1], rest)
    return tuple(parts), tuple(frame)


def change(before: RenewedText | None, now: RenewedText) -> bytes:
    """Returns the events that make `before` into `now`: those parts that differ, or all; nothing if none does."""
    if before is None or before.frame != now.frame:
        return everything(now)
    pairs = zip((*now.head, *now.parts), (*before.head, *before.parts), strict=True)
    changed = [part for part, old in pairs if part != old]
    return event("parts", changed) if changed else b""


def everything(now: RenewedText) -> bytes:
    """Returns the events that have all of it."""
    return (event("parts", now.head) if now.head else b"") + event("whole", now.whole)


def event(kind: str, data: object) -> bytes:
    """Returns an event as browsers read it (server-sent events), its data as JSON, which is one line."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(data))
