"""Reads the parts of a date's text, each by the grammar that SimpleDateFormat has for it, and makes a moment of them.

On its own because a pattern needs none of it to be written by.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from connectors.data.java_calendar import DAY_MS, LONGEST_MS, day_of, month_start
from connectors.transforms.java_dates import zone_names

MONTHS: Final = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
                 "November", "December")  # fmt: skip
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ZONES: Final = "ZXz"
_NAMES: Final = {"M": MONTHS, "E": DAYS, "a": ("AM", "PM")}
_SMALLEST: Final = -(1 << 31)
_BLANKS: Final = re.compile(r"[ \t]*")
_NUMBER: Final = re.compile(r"[ \t]*(-?)(\d+)(?:E(-?\d+))?")
_GMT: Final = re.compile(r"GMT([+-])?", re.IGNORECASE)
_OFFSETS: Final = {
    1: re.compile(r"([+-])(\d\d)"),
    2: re.compile(r"([+-])(\d\d)(\d\d)"),
    3: re.compile(r"([+-])(\d\d):(\d\d)"),
}
"""How an offset is written, by how often X stands; Z and z have it as XX."""
_AFTER_GMT: Final = re.compile(r"([+-])(\d\d?):(\d\d)")
_NONE: Final = -1
"""In place of a position: what is looked for is not there."""


class DateFields:
    """What was read: numbers by letter, and the zone. `century_year`: years of two digits are from there on."""

    def __init__(self, century_year: int) -> None:
        self.century_year = century_year
        self.values: dict[str, int] = {}
        """By letter, in the order in which they were read: of two that say the hour the later one counts."""
        self.zone: int | str = 0
        """The offset (ms) that was read last, or the name of a zone in its place."""
        self.may_be_next_century = False
        """Whether the year is one of which only the whole date says whether it is in this century or the next."""

    def set(self, letter: str, value: int) -> None:
        """Notes a number as the one that was read last."""
        self.values.pop(letter, None)
        self.values[letter] = value

    def add_century(self) -> None:
        """Moves the year by a hundred."""
        self.values["y"] += 100

    def ms(self) -> int:
        """Returns the moment (ms); months, days and hours beyond their bounds run over, as in Java."""
        get = self.values.get
        of_day = ((self._hour() * 60 + get("m", 0)) * 60 + get("s", 0)) * 1_000 + get("S", 0)
        more, of_day = divmod(of_day, DAY_MS)
        year, month = get("y", 1970), get("M", 1)
        julian, gregorian = (more + self._day(month_start(year, month, julian=each)) for each in (True, False))
        wall_ms = day_of(year, julian, gregorian) * DAY_MS + of_day
        return wall_ms - (self.zone if isinstance(self.zone, int) else zone_names.offset_ms(self.zone, wall_ms))

    def _day(self, first: int) -> int:
        """Returns the day of a month that begins at `first`; a day of the week alone is the first one of the month."""
        if "d" in self.values or "E" not in self.values:
            return first + self.values.get("d", 1) - 1
        return first + (self.values["E"] - first - 3) % 7

    def _hour(self) -> int:
        """Returns the hour: of the day, unless one of its half, and which half, were read later."""
        values = self.values
        order = list(values)
        half = max(order.index("h"), order.index("a")) if "h" in values and "a" in values else _NONE
        if "H" in values and order.index("H") > half:
            return values["H"]
        hour = values.get("h", 0)
        return (0 if hour == 12 else hour) + 12 * values.get("a", 0)


Reader = Callable[[DateFields, str, int], int]
"""Reads a part of a text from a position on, and returns where it ends; _NONE if it is not there."""


def text_part(expected: str) -> Reader:
    """Returns what reads a text that stands there as it is."""
    size = len(expected)
    return lambda _, text, at: at + size if text.startswith(expected, at) else _NONE


def number(letter: str, size: int, *, is_followed: bool) -> Reader:
    """Returns what reads a number; if digits of another follow at once, its own end after `size` characters."""
    is_short_year = letter == "y" and size <= 2

    def read(fields: DateFields, text: str, at: int) -> int:
        end = at + size if is_followed else len(text)
        match = _NUMBER.match(text, at, end)
        if match is None or end > len(text):
            return _NONE
        sign, digits, exponent = match.groups()
        value = int(digits) if len(digits) < 10 and not (sign or exponent) else _int_of(sign, digits, exponent)
        if is_short_year and len(digits) == 2 and not (sign or exponent):
            value = _full_year(fields, value)
        fields.set(letter, value)
        return match.end()

    return read


def _full_year(fields: DateFields, value: int) -> int:
    century, first = divmod(fields.century_year, 100)
    fields.may_be_next_century = value == first
    return value + 100 * (century + (value < first))


def _int_of(sign: str, digits: str, exponent: str | None) -> int:
    """Returns a number as Java's `intValue`: of one that 64 bits hold the lowest 32, of a larger one the bound."""
    power = int(exponent[:6]) if exponent else 0
    digits = digits.lstrip("0") or "0"
    if digits == "0" or len(digits) + power <= 0:
        return 0
    if len(digits) + power > 19:
        return _SMALLEST if sign else -_SMALLEST - 1
    value = int(digits) * 10**power if power >= 0 else int(digits[: len(digits) + power])
    value = -value if sign else value
    if not -LONGEST_MS <= value < LONGEST_MS:
        return _SMALLEST if sign else -_SMALLEST - 1
    return (value - _SMALLEST) % -(2 * _SMALLEST) + _SMALLEST


def name(letter: str) -> Reader:
    """Returns what reads the name of a month, a day of the week or a half of the day, in full or by three letters."""
    forms = [(name.lower(), at) for at, name in enumerate(_NAMES[letter], start=letter == "M")]
    forms += [(name[:3], at) for name, at in forms]

    def read(fields: DateFields, text: str, at: int) -> int:
        rest = text[at : at + 12].lower()
        for form, value in forms:
            if rest.startswith(form):
                fields.set(letter, value)
                return at + len(form)
        return _NONE

    return read


def zone(iso_size: int) -> Reader:
    """Returns what reads a zone: an ISO 8601 one as so many X have it, or, with 0, what Z and z have."""

    def read_iso(fields: DateFields, text: str, at: int) -> int:
        start = _start(text, at)
        if text.startswith("Z", start):
            fields.zone = 0
            return start + 1
        return _offset(fields, _OFFSETS[iso_size].match(text, start))

    return read_iso if iso_size else _read_zone


def _read_zone(fields: DateFields, text: str, at: int) -> int:
    start = _start(text, at)
    if text[start : start + 1] in {"+", "-"}:
        return _offset(fields, _OFFSETS[2].match(text, start))
    if start == at and (gmt := _GMT.match(text, at)):
        if gmt[1]:
            return _offset(fields, _AFTER_GMT.match(text, at + 3))
        fields.zone = 0
        return gmt.end()
    named = zone_names.name_at(text, start)
    if named is None:
        return _NONE
    fields.zone = named
    return start + len(named)


def _start(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _offset(fields: DateFields, match: re.Match[str] | None) -> int:
    if match is None:
        return _NONE
    sign, hours, *minutes = match.groups()
    of_hour = int(minutes[0]) if minutes else 0
    if int(hours) > 23 or of_hour > 59:
        return _NONE
    fields.zone = (int(hours) * 60 + of_hour) * (60_000 if sign == "+" else -60_000)
    return match.end()
