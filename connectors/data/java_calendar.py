"""Counts days as Java's GregorianCalendar does: until 4 October 1582 by the Julian calendar, the day after is the 15th.

`datetime` has neither that nor years before 1 or after 9999. All numbers are whole and of any size.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DAY_MS: Final = 86_400_000
LONGEST_MS: Final = 1 << 63
"""Java counts milliseconds in 64 bits, which end in the years 292278994 and -292275055."""
_CUTOVER: Final = -141_427
"""15 October 1582 in days since 1970."""
_CUTOVER_YEAR: Final = 1582


class Moment(NamedTuple):
    """A moment of UTC as it is written. `year` counts from 1 also before Christ; `weekday` is 0 for Monday."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    ms: int
    weekday: int

    @property
    def date(self) -> str:
        """The day as `2026-01-31`, the form of Values' dates."""
        return f"{self.year:04}-{self.month:02}-{self.day:02}"

    @property
    def time(self) -> str:
        """The time of day as `12:00:00.000Z`."""
        return f"{self.hour:02}:{self.minute:02}:{self.second:02}.{self.ms:03}Z"


def moment_of(ms: int) -> Moment:
    """Returns the moment `ms` since 1970-01-01T00:00Z."""
    days, of_day = divmod(ms, DAY_MS)
    year, month, day = _gregorian(days) if days >= _CUTOVER else _julian(days)
    seconds, millis = divmod(of_day, 1_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return Moment(year if year > 0 else 1 - year, month, day, hour, minute, second, millis, (days + 3) % 7)


def month_start(year: int, month: int, *, julian: bool) -> int:
    """Returns the first day of a month, in days since 1970; months beyond 1 to 12 are those of other years.

    The year before 1 is 0.
    """
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    year, of_year = (year, month - 3) if month > 2 else (year - 1, month + 9)
    days = (153 * of_year + 2) // 5 + 365 * year + year // 4
    return days - 719_470 if julian else days - year // 100 + year // 400 - 719_468


def day_of(year: int, julian_day: int, gregorian_day: int) -> int:
    """Returns which of two counts holds for a day of `year`, counted by both calendars; both are days since 1970."""
    return gregorian_day if year >= _CUTOVER_YEAR and gregorian_day >= _CUTOVER else julian_day


def _gregorian(days: int) -> tuple[int, int, int]:
    cycle, rest = divmod(days + 719_468, 146_097)
    year = (rest - rest // 1_460 + rest // 36_524 - rest // 146_096) // 365
    return _of_year(400 * cycle + year, rest - (365 * year + year // 4 - year // 100))


def _julian(days: int) -> tuple[int, int, int]:
    cycle, rest = divmod(days + 719_470, 1_461)
    year = min(rest // 365, 3)
    return _of_year(4 * cycle + year, rest - 365 * year)


def _of_year(year: int, days: int) -> tuple[int, int, int]:
    """Returns year, month and day of a day that is counted from 1 March on."""
    month = (5 * days + 2) // 153
    day = days - (153 * month + 2) // 5 + 1
    return (year, month + 3, day) if month < 10 else (year + 1, month - 9, day)
