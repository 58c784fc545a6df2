"""Writes and reads moments by a pattern of Java's (`java.text.SimpleDateFormat`), in UTC and English.

Each part of a text is read by the grammar that SimpleDateFormat has for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final

from connectors.data.java_calendar import DAY_MS, LONGEST_MS, Moment, day_of, moment_of, month_start
from connectors.errors import DataError
from connectors.transforms.java_dates import zone_names

MONTHS: Final = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
                 "November", "December")  # fmt: skip
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ZONES: Final = "ZXz"
_NAMES: Final = {"M": MONTHS, "E": DAYS, "a": ("AM", "PM")}
# The smallest int of Java; the largest is -_SMALLEST - 1.
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
"""Reads a part of a text from a position on, and returns the position after it; _NONE if it is not there."""


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
