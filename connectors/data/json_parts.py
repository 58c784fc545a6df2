"""Decodes large JSON in parts, so that other threads of the process get on in between.

A call of the decoder holds all other threads until it is done: 0.3 s for an object of 8 MiB with a million keys. Here
the members of the outermost list or object are decoded some at a time, and those of a large member likewise. What is no
JSON is refused as in one call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from connectors.data.collector import decoded, uncollected
from connectors.data.pace import EVERY, passed

LARGE: Final = 1 << 20
"""Bytes from which on JSON is decoded so; less takes 0.04 s at most."""
PART: Final = 128 << 10
"""Bytes of members that are decoded in one call, and that are looked through for commas at a time."""
_DEEPEST: Final = 4
"""Levels at which a member is large and has parts itself. As a rule there are two, of an envelope and a row; each is
looked through again, which takes 0.05 s."""

_QUOTE, _COMMA, _BACKSLASH = b'",\\'
_OPENING, _CLOSING = b"{}"
_LOWER: Final = 0x20
"""The bit in which "[" and "]" differ from these two."""
_BLANKS: Final = b" \t\r\n"
_KEY: Final = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*+")[ \t\r\n]*:', re.DOTALL)
_BYTE: Final = re.compile(r"\(byte (\d+)\)")

Decode = Callable[[bytes], Any]


def decoded_in_parts(decode: Decode, text: bytes, large: int = LARGE, part: int = PART) -> Any:
    """Returns what `decode`, of a decoder without a type, makes of `text`; in parts of `part` bytes if it is `large`.

    `large` is more than twice `part`, so that of the members in a group none is large.
    Raises what `decode` raises, and what the limit raises (`data/pace.py`), if its time has come.
    """
    if len(text) < large:
        return decoded(decode, text)
    return uncollected(lambda: _Large(decode, text, large, part).value(0, len(text), _DEEPEST))


class _Large:
    """One text, and how it is decoded."""

    def __init__(self, decode: Decode, text: bytes, large: int, part: int) -> None:
        self._decode = decode
        self._text = text
        self._large = large
        self._part = part

    def value(self, start: int, end: int, levels: int) -> Any:
        """Returns the value from `start` to `end`; `levels` of its members may have parts."""
        start = end - len(self._text[start:end].lstrip(_BLANKS))  # one by one 8 MiB of blanks take 0.4 s
        end = start + len(self._text[start:end].rstrip(_BLANKS))
        ends = self._text[start : start + 1] + self._text[end - 1 : end]
        if end - start < self._large or not levels or ends not in (b"{}", b"[]"):
            return self._call(b"", start, end, b"")
        made: Any = {} if ends == b"{}" else []
        for first, last in self._groups(start, end):
            is_blank = not self._text[first:last].strip(_BLANKS)
            if last - first >= self._large and not is_blank:
                self._add_large(made, first, last, levels - 1)
            else:
                whole = is_blank and (first > start + 1 or last < end - 1)  # nothing between commas is no JSON
                group = self._call(b"", start, end, b"") if whole else self._call(ends[:1], first, last, ends[1:])
                made.update(group) if isinstance(made, dict) else made.extend(group)
            passed(EVERY)
        return made

    def _add_large(self, made: Any, first: int, last: int, levels: int) -> None:
        """Adds the members from `first` to `last`, of which one at most is large."""
        if isinstance(made, list):
            made.append(self.value(first, last, levels))
            return
        key = _KEY.match(self._text, first, last)
        if key is None:
            made.update(self._call(b"{", first, last, b"}"))
        else:
            name = self._call(b"", key.start(1), key.end(1), b"")
            made[name] = self.value(key.end(), last, levels)

    def _call(self, before: bytes, start: int, end: int, after: bytes) -> Any:
        try:
            return self._decode(before + self._text[start:end] + after)
        except msgspec.DecodeError as error:
            said = _BYTE.sub(lambda byte: f"(byte {int(byte[1]) + start - len(before)})", str(error))
            raise msgspec.DecodeError(said) from None

    def _groups(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yields start and end of the members of a list or an object, some in a group; a large one alone."""
        first, comma = start + 1, None  # the last comma within the group
        for commas in _commas(np.frombuffer(self._text, np.uint8)[start:end], self._part):
            places = commas + start
            while True:
                at = int(np.searchsorted(places, first + self._part))
                if at and places[at - 1] >= first:
                    comma = int(places[at - 1])
                if at == len(places):
                    break
                yield from self._apart(first, comma, int(places[at]))
                first, comma = int(places[at]) + 1, None
        yield from self._apart(first, comma, end - 1)

    def _apart(self, first: int, comma: int | None, last: int) -> Iterator[tuple[int, int]]:
        if comma is not None and last - comma > self._part:
            yield first, comma
            first = comma + 1
        yield first, last


def _commas(text: NDArray[np.uint8], size: int) -> Iterator[NDArray[np.intp]]:
    """Yields the places of the commas between the members of a list or an object, of `size` bytes at a time."""
    depth = is_inside = backslashes = 0  # as the bytes before leave it
    for first in range(0, len(text), size):
        window = text[first : first + size]
        quotes = np.flatnonzero(window == _QUOTE)
        others = np.flatnonzero(window != _BACKSLASH)
        if backslashes or len(others) < len(window):
            quotes = quotes[_backslashes_before(quotes, others, backslashes) % 2 == 0]
        backslashes = len(window) - 1 - int(others[-1]) if len(others) else backslashes + len(window)
        turns = np.zeros(len(window), np.uint8)
        turns[quotes] = 1
        within = (np.cumsum(turns, dtype=np.uint8) + is_inside) & 1  # it wraps at 256, which is even
        is_inside = int(within[-1])
        lower, is_outside = window | _LOWER, within == 0
        steps = ((lower == _OPENING) & is_outside).astype(np.int32) - ((lower == _CLOSING) & is_outside)
        depths = np.cumsum(steps, dtype=np.int32) + depth
        depth = int(depths[-1])
        yield np.flatnonzero((window == _COMMA) & is_outside & (depths == 1)) + first


def _backslashes_before(quotes: NDArray[np.intp], others: NDArray[np.intp], carried: int) -> NDArray[np.intp]:
    """Returns how many backslashes stand right before each quote; `carried`: at the end of the bytes before."""
    at = np.searchsorted(others, quotes) - 1
    return np.where(at < 0, quotes + carried, quotes - 1 - others[at])
