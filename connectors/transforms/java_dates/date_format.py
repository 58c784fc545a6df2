"""Writes and reads moments by a pattern of Java's (`java.text.SimpleDateFormat`), in UTC and English.

On its own because it knows nothing of records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final

from connectors.data.java_calendar import DAY_MS, LONGEST_MS, Moment, moment_of, month_start
from connectors.errors import DataError
from connectors.transforms.java_dates.date_fields import (
    DAYS,
    MONTHS,
    ZONES,
    DateFields,
    Reader,
    name,
    number,
    text_part,
    zone,
)

_LETTERS: Final = "yMdHhmsSaEZXz"
_LONGEST_TEXT: Final = 1_000
"""Characters of a text that is read: dates have some dozens, and of a record's text any number may come."""
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'|([^']+)", re.DOTALL)
_Part = tuple[str, int]
"""A letter and how often it stands, or a text and 0."""


class DateFormat:
    """A pattern; ValueError for one that has a letter which is not known here.

    A year of two digits is read as the one of the hundred years that began 80 years before `now_ms`.
    """

    def __init__(self, pattern: str, now_ms: int) -> None:
        parts = list(_parts(pattern))
        self._writers = [_writer(*part) for part in parts]
        followers = [*parts[1:], ("", 0)]
        self._readers = [_reader(*part, after) for part, after in zip(parts, followers, strict=True)]
        self._century_ms = _eighty_years_before(now_ms)
        self._century_year = moment_of(self._century_ms).year

    def format(self, ms: int) -> str:
        """Returns the moment `ms` (since 1970-01-01T00:00Z) as text."""
        moment = moment_of(ms)
        return "".join([write(moment) for write in self._writers])

    def parse(self, text: str) -> int:
        """Returns the moment (ms) that `text` begins with. Raises DataError if it begins with none."""
        if len(text) > _LONGEST_TEXT:
            raise DataError(f'"{text[:100]}…" has {len(text)} characters; a date has at most {_LONGEST_TEXT}.')
        fields, at = DateFields(self._century_year), 0
        for read in self._readers:
            at = read(fields, text, at)
            if at < 0:
                raise DataError(f'"{text:.100}" is no date of this pattern.')
        ms = fields.ms()
        if fields.may_be_next_century and ms < self._century_ms:
            fields.add_century()
            ms = fields.ms()
        if not -LONGEST_MS <= ms < LONGEST_MS:
            raise DataError(f'"{text:.100}" is further away than 64 bits of milliseconds are.')
        return ms


def _eighty_years_before(now_ms: int) -> int:
    now = moment_of(now_ms)
    day = min(now.day, 28) if now.month == 2 else now.day
    return (month_start(now.year - 80, now.month, julian=False) + day - 1) * DAY_MS + now_ms % DAY_MS


def _parts(pattern: str) -> Iterator[_Part]:
    """Cuts a pattern into letters with how often they stand, and texts. Raises ValueError."""
    if pattern.count("'") % 2:
        raise ValueError("a quote is not closed.")
    for quoted, plain in _QUOTED.findall(pattern):
        if not plain:
            yield quoted.replace("''", "'") or "'", 0
            continue
        for letter, run in groupby(plain):
            size = len(list(run))
            if not (letter.isascii() and letter.isalpha()):
                yield letter * size, 0
            elif letter not in _LETTERS:
                raise ValueError(f'"{letter}" is not supported; there are {", ".join(_LETTERS)}.')
            elif letter == "X" and size > 3:
                raise ValueError(f'"{letter * size}" is not supported; there are X, XX and XXX.')
            else:
                yield letter, size


def _is_number(letter: str, size: int) -> bool:
    return size > 0 and letter not in "aE" and letter not in ZONES and not (letter == "M" and size > 2)


def _reader(letter: str, size: int, after: _Part) -> Reader:
    """Returns what reads a part before the part `after`: with digits next, the count says how many are its own."""
    if size == 0:
        return text_part(letter)
    if letter in ZONES:
        return zone(size if letter == "X" else 0)
    return number(letter, size, is_followed=_is_number(*after)) if _is_number(letter, size) else name(letter)


def _writer(letter: str, size: int) -> Callable[[Moment], str]:
    if size == 0:
        return lambda _: letter
    if letter == "y" and size == 2:
        return lambda moment: f"{moment.year % 100:02}"
    if letter in _NUMBERS and not (letter == "M" and size > 2):
        value = _NUMBERS[letter]
        return lambda moment: str(value(moment)).rjust(size, "0")
    value_of, shorten = _TEXTS[letter], (None if size > 3 else 3)
    if letter == "z":
        return lambda _: "UTC" if shorten else "Coordinated Universal Time"
    return lambda moment: value_of(moment)[:shorten] if letter in "ME" else value_of(moment)


_NUMBERS: Final[dict[str, Callable[[Moment], int]]] = {
    "y": lambda moment: moment.year,
    "M": lambda moment: moment.month,
    "d": lambda moment: moment.day,
    "H": lambda moment: moment.hour,
    "h": lambda moment: (moment.hour + 11) % 12 + 1,
    "m": lambda moment: moment.minute,
    "s": lambda moment: moment.second,
    "S": lambda moment: moment.ms,
}
_TEXTS: Final[dict[str, Callable[[Moment], str]]] = {
    "M": lambda moment: MONTHS[moment.month - 1],
    "E": lambda moment: DAYS[moment.weekday],
    "a": lambda moment: "AM" if moment.hour < 12 else "PM",
    "Z": lambda _: "+0000",
    "X": lambda _: "Z",
    "z": lambda _: "UTC",
}
