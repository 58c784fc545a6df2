"""Writes and reads moments by a pattern of Java's (`java.text.SimpleDateFormat`), in UTC and English.

On its own because it knows nothing of records.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from itertools import groupby
from typing import Final

from connectors.errors import DataError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS: Final = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
                  "November", "December")  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LETTERS: Final = "yMdHhmsSaEZXz"
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'|([^']+)", re.DOTALL)
_ZONE: Final = r"Z|UTC|GMT|[+-]\d\d:?\d\d|[+-]\d\d"


class DateFormat:
    """A pattern; ValueError for one that has a letter which is not known here."""

    def __init__(self, pattern: str) -> None:
        self._parts = list(_parts(pattern))
        self._regex = re.compile("".join(self._as_regex(at) for at in range(len(self._parts))), re.IGNORECASE)

    def format(self, ms: int) -> str:
        """Returns the moment `ms` (since 1970-01-01T00:00Z) as text."""
        try:
            moment = _EPOCH + timedelta(milliseconds=ms)
        except OverflowError:
            raise DataError(f"{ms} ms is a moment that has no four-digit year.") from None
        return "".join(_written(letter, size, moment) if size else letter for letter, size in self._parts)

    def parse(self, text: str) -> int:
        """Returns the moment (ms) that `text` begins with. Raises DataError where it does not."""
        found = self._regex.match(text)
        if found is None:
            raise DataError(f'"{text:.100}" is no date of this pattern.')
        fields: dict[str, str] = {}
        for (letter, size), value in zip((one for one in self._parts if one[1]), found.groups(), strict=True):
            fields[letter] = value if not (letter == "y" and size == 2) else _century(value)
        try:
            return _moment(fields)
        except (ValueError, OverflowError):
            raise DataError(f'"{text:.100}" is no date.') from None

    def _as_regex(self, at: int) -> str:
        letter, size = self._parts[at]
        if not size:
            return re.escape(letter)
        if (letter == "M" and size > 2) or letter == "E":
            return f"({'|'.join(f'{name}|{name[:3]}' for name in (_MONTHS if letter == 'M' else _DAYS))})"
        if letter == "a":
            return "(AM|PM)"
        if letter in "ZXz":
            return f"({_ZONE})"
        is_followed = at + 1 < len(self._parts) and self._parts[at + 1][1] and self._parts[at + 1][0] not in "aEZXz"
        return rf"(\d{{{size}}})" if is_followed else r"\s*(-?\d+)"


def _parts(pattern: str) -> list[tuple[str, int]]:
    """Cuts a pattern into letters with how often they stand, and texts, whose count is 0."""
    found: list[tuple[str, int]] = []
    if pattern.count("'") % 2:
        raise ValueError("a quote is not closed.")
    for quoted, plain in _QUOTED.findall(pattern):
        if not plain:
            found.append((quoted.replace("''", "'") or "'", 0))
            continue
        for letter, run in groupby(plain):
            size = len(list(run))
            if letter.isascii() and letter.isalpha():
                if letter not in _LETTERS:
                    raise ValueError(f'"{letter}" is not supported; there are {", ".join(_LETTERS)}.')
                found.append((letter, size))
            else:
                found.append((letter * size, 0))
    return found


def _written(letter: str, size: int, moment: datetime) -> str:
    numbers = {
        "y": moment.year % 100 if size == 2 else moment.year, "M": moment.month, "d": moment.day, "H": moment.hour,
        "h": (moment.hour + 11) % 12 + 1, "m": moment.minute, "s": moment.second, "S": moment.microsecond // 1000,
    }  # fmt: skip
    if letter == "M" and size > 2:
        name = _MONTHS[moment.month - 1]
        return name if size > 3 else name[:3]
    if letter in numbers:
        return str(numbers[letter]).rjust(size, "0")
    names = {
        "a": "AM" if moment.hour < 12 else "PM",
        "E": _DAYS[moment.weekday()] if size > 3 else _DAYS[moment.weekday()][:3],
        "Z": "+0000",
        "X": "Z",
        "z": "UTC" if size < 4 else "Coordinated Universal Time",
    }
    return names[letter]


def _moment(fields: dict[str, str]) -> int:
    """Returns the ms of what was read; days and hours beyond their month or day run over, as in Java."""
    month = fields.get("M", "1")
    number = int(month) if month.lstrip("-").isdigit() else _index(_MONTHS, month) + 1
    hour = int(fields["H"]) if "H" in fields else int(fields.get("h", "0")) % 12
    if fields.get("a", "").upper() == "PM" and "H" not in fields:
        hour += 12
    year = int(fields.get("y", "1970")) + (number - 1) // 12
    day = datetime(year, (number - 1) % 12 + 1, 1, tzinfo=_zone(fields))
    more = timedelta(
        days=int(fields.get("d", "1")) - 1,
        hours=hour,
        minutes=int(fields.get("m", "0")),
        seconds=int(fields.get("s", "0")),
        milliseconds=int(fields.get("S", "0")),
    )
    return (day + more - _EPOCH) // timedelta(milliseconds=1)


def _index(names: tuple[str, ...], text: str) -> int:
    return next(at for at, name in enumerate(names) if name[:3].lower() == text[:3].lower())


def _zone(fields: dict[str, str]) -> timezone:
    text = next((fields[letter] for letter in "ZXz" if letter in fields), "Z").upper()
    if text[0] not in "+-":
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(ahead if text[0] == "+" else -ahead)


def _century(text: str) -> str:
    """Returns a year of two digits as the one from 80 years ago to 20 ahead, counted from 2026."""
    year = int(text)
    return str(year) if len(text) != 2 else str(year + (2000 if year <= 46 else 1900))
