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
_PART: Final = re.compile(r'<!--part-->(\s*<\w+ id="([^"]+)".*?)<!--/part-->', re.DOTALL)


class RenewedText(Struct, frozen=True):
    """What is renewed of a page: all of it, the parts within it, and in `frame` the rest with the parts' ids."""

    whole: str
    parts: tuple[str, ...]
    frame: tuple[str, ...]


def renewed(page: str) -> RenewedText:
    """Returns what is renewed of a page's HTML. Raises ValueError if the page does not say that."""
    begin, end = page.index(BEGIN), page.index(END)
    whole = page[begin:end]
    pieces = _PART.split(whole)  # text, part, its id, text, part, its id, ..., text
    return RenewedText(whole, tuple(pieces[1::3]), (*pieces[::3], *pieces[2::3]))


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
