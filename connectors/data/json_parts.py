"""Decodes large JSON in parts, so that other threads of the process get on in between.

A call of the decoder holds all other threads until it is done: 0.3 s for an object of 8 MiB with a million keys. Here
the members of the outermost list or object are decoded some at a time, and those of a large member likewise, however
deep that lies. What is no JSON is refused as in one call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from connectors.data.bounds import DEEPEST, check_depth
from connectors.data.collector import decoded, uncollected
from connectors.data.pace import EVERY, passed

LARGE: Final = 1 << 20
"""Bytes from which on JSON is decoded so; less takes 0.04 s at most."""
PART: Final = 128 << 10
"""Bytes of members that are decoded in one call, and that are looked through for commas at a time."""

_QUOTE, _COMMA, _BACKSLASH = b'",\\'
_OPENING, _CLOSING = b"{}"
_LOWER: Final = 0x20
"""The bit in which "[" and "]" differ from these two."""
_ENDS: Final = {b"{": b"}", b"[": b"]"}
_MEMBER: Final = {b"{": b'"":0,', b"[": b"0,"}
"""What ends an object and a list, and a short member with the comma after it."""
_BLANKS: Final = b" \t\r\n"
_WITHIN: Final = re.compile(rb'(?:[^"\\]|\\.)*+', re.DOTALL)
"""What a text has between its quotes."""
_BYTE: Final = re.compile(r"\(byte (\d+)\)")

Decode = Callable[[bytes], Any]


def decoded_in_parts(decode: Decode, text: bytes, large: int = LARGE, part: int = PART) -> Any:
    """Returns what `decode`, of a decoder without a type, makes of `text`; in parts of `part` bytes if it is `large`.

    `large` is more than twice `part`, so that of the members in a group none is large.
    Raises what `decode` raises, DataError for a large member within more than `bounds.DEEPEST` others, and what the
    limit raises (`data/pace.py`), if its time has come.
    """
    if len(text) < large:
        return decoded(decode, text)
    return uncollected(lambda: _Large(decode, text, large, part).value(0, len(text), 1))


class _Large:
    """One text, and how it is decoded."""

    def __init__(self, decode: Decode, text: bytes, large: int, part: int) -> None:
        self._decode = decode
        self._text = text
        self._large = large
        self._part = part
        self._borders = _Borders(text, part)

    def value(self, start: int, end: int, level: int) -> Any:
        """Returns the value from `start` to `end`; `level` is 1 for the outermost."""
        start, end = self._stripped(start, end)
        opening = self._text[start : start + 1]
        if end - start < self._large or opening not in _ENDS:
            return self._call(b"", start, end, b"")
        check_depth(level)
        closing = _ENDS[opening]
        is_closed = self._text[end - 1 : end] == closing
        inner = start + 1, end - is_closed
        made: Any = {} if opening == b"{" else []
        for first, last in self._groups(*inner, level):
            if not self._text[first:last].strip(_BLANKS):
                self._refuse_nothing(opening, first, last, inner)
            elif last - first >= self._large:
                self._add_large(made, first, last, level + 1)
            else:
                group = self._call(opening, first, last, closing)
                made.update(group) if isinstance(made, dict) else made.extend(group)
            passed(EVERY)
        if not is_closed:
            self._call(opening, end, end, b"")  # which is refused
        return made

    def _refuse_nothing(self, opening: bytes, first: int, last: int, inner: tuple[int, int]) -> None:
        """Raises what `decode` raises for nothing between commas, unless there is nothing else from end to end."""
        if (first, last) != inner:
            self._call(opening + (_MEMBER[opening] if first > inner[0] else b""), last, last + 1, b"")

    def _add_large(self, made: Any, first: int, last: int, level: int) -> None:
        """Adds the one large member from `first` to `last`."""
        if isinstance(made, list):
            made.append(self.value(first, last, level))
            return
        start, _ = self._stripped(first, last)
        end = self._end_of_text(start, last)
        colon, _ = self._stripped(end, last)
        if self._text[start : start + 1] != b'"' or self._text[colon : colon + 1] != b":":
            self._call(b"{", first, colon + 1, b"")  # which is refused
        name = self._call(b"", start, end, b"")
        made[name] = self.value(colon + 1, last, level)

    def _end_of_text(self, start: int, end: int) -> int:
        """Returns the place at which the text from `start` on ends; `end` if it does not end before."""
        at = start + 1
        while at < end and self._text[at : at + 1] != b'"':
            # One byte more than a part: a backslash at its end is looked at with what follows.
            within = _WITHIN.match(self._text, at, min(at + self._part + 1, end))
            if within is None or within.end() == at:
                return end
            at = within.end()
        return min(at + 1, end)

    def _stripped(self, start: int, end: int) -> tuple[int, int]:
        """Returns start and end without blanks: a part at a time, as 8 MiB of them one by one take 0.4 s."""
        while start < end and self._text[start] in _BLANKS:
            piece = self._text[start : min(start + self._part, end)]
            start += len(piece) - len(piece.lstrip(_BLANKS))
        while start < end and self._text[end - 1] in _BLANKS:
            piece = self._text[max(end - self._part, start) : end]
            end -= len(piece) - len(piece.rstrip(_BLANKS))
        return start, end

    def _call(self, before: bytes, start: int, end: int, after: bytes) -> Any:
        try:
            return self._decode(before + self._text[start:end] + after)
        except msgspec.DecodeError as error:
            said = _BYTE.sub(lambda byte: f"(byte {int(byte[1]) + start - len(before)})", str(error))
            raise msgspec.DecodeError(said) from None

    def _groups(self, first: int, end: int, level: int) -> Iterator[tuple[int, int]]:
        """Yields start and end of the members from `first` to `end`, some in a group; a large one alone."""
        last = None
        for border in (*self._borders.between(first, end, level), end):
            if last is not None and border - first > self._part:
                yield first, last
                first = last + 1
            last = border
        yield first, end


class _Borders:
    """The commas at which a text may be parted: of each window of `size` bytes and each level the first and the last.

    From the last of a window to the first of a later one is one member.
    """

    def __init__(self, text: bytes, size: int) -> None:
        self._size = size
        # Their places, in the order in which they come; -1 is none.
        self._places = np.full((-(-len(text) // size), DEEPEST + 1, 2), -1, np.int64)
        for places, (commas, levels) in zip(self._places, _commas(text, size), strict=True):
            order = np.argsort(levels, kind="stable")
            ends = np.flatnonzero(np.diff(levels[order], append=-1))
            starts = np.concatenate(([0], ends[:-1] + 1))[: len(ends)]
            for side, at in enumerate((order[starts], order[ends])):
                places[levels[at], side] = commas[at]

    def between(self, start: int, end: int, level: int) -> list[int]:
        """Returns those from `start` to `end` at `level`, which is of one list or object of more than two windows."""
        places = self._places[start // self._size : end // self._size + 1, level].ravel()
        return list(dict.fromkeys(places[(places >= start) & (places < end)].tolist()))


def _commas(text: bytes, size: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int16]]]:
    """Yields the places of commas between members, and their levels up to DEEPEST, of `size` bytes at a time."""
    depth = is_inside = backslashes = 0  # as the bytes before leave it
    for first in range(0, len(text), size):
        window = np.frombuffer(text, np.uint8)[first : first + size]
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
        commas = np.flatnonzero((window == _COMMA) & is_outside & (depths > 0) & (depths <= DEEPEST))
        yield commas + first, depths[commas].astype(np.int16)


def _backslashes_before(quotes: NDArray[np.intp], others: NDArray[np.intp], carried: int) -> NDArray[np.intp]:
    """Returns how many backslashes stand right before each quote; `carried`: at the end of the bytes before."""
    at = np.searchsorted(others, quotes) - 1
    return np.where(at < 0, quotes + carried, quotes - 1 - others[at])
