"""Dates are read and written as SimpleDateFormat does: each line here was asked of Java's own class."""

from __future__ import annotations

import time

import pytest

from connectors.data.java_calendar import DAY_MS, moment_of, month_start
from connectors.errors import DataError
from connectors.transforms.java_dates.date_format import DateFormat

NOW_MS = 1_764_000_000_000
"""In November 2025."""
AT = "yyyy-MM-dd HH:mm"
TEN = "2025-07-16 10:00"
TEN_MS = 1_752_660_000_000
HOUR_MS = 3_600_000


def read(pattern: str, text: str, now_ms: int = NOW_MS) -> int:
    return DateFormat(pattern, now_ms).parse(text)


@pytest.mark.parametrize(
    ("letters", "zone", "hours"),
    [
        ("z", "GMT+02:00", 2), ("z", "GMT-05:30", -5.5), ("z", "GMT+2:00", 2), ("z", "gmt", 0), ("Z", "GMT+02:00", 2),
        ("z", "+0200", 2), ("Z", "-0530", -5.5), ("z", "UTC", 0), ("Z", "UTC", 0), ("zzzz", "UTC", 0),
        ("z", "EDT", -4), ("z", "EST", -5), ("z", "PST", -8), ("z", "CEST", 2), ("z", "cest", 2), ("Z", "CET", 1),
        ("z", "Central European Summer Time", 2), ("z", "Pacific Daylight Time", -7), ("z", "IST", 2), ("z", "MSK", 3),
        ("z", "Irish Standard Time", 1), ("z", "JST", 9), ("z", "Newfoundland Daylight Time", -2.5), ("z", "NPT", 5.75),
        ("X", "Z", 0), ("X", "+02", 2), ("X", "+0200", 2), ("X", "-0530", -5), ("XX", "+0200", 2), ("XX", "Z", 0),
        ("XXX", "-05:30", -5.5), ("XXX", "Z", 0), ("XXX", "+23:59", 23 + 59 / 60),
    ],
)  # fmt: skip
def test_zones(letters: str, zone: str, hours: float) -> None:
    """Each letter has a grammar of its own, and no offset is lost in silence."""
    assert read(f"{AT} {letters}", f"{TEN} {zone}") == TEN_MS - hours * HOUR_MS


@pytest.mark.parametrize(
    ("letters", "zone"),
    [
        ("z", "GMT+0200"), ("z", "GMT+02"), ("z", "+02:00"), ("z", "+02"), ("z", "Z"), ("Z", "Z"), ("Z", "-5:30"),
        ("z", "Mars Standard Time"), ("z", "GMT+24:00"), ("z", "+2400"), ("z", "+0260"), ("X", "z"), ("X", "UTC"),
        ("X", "+2"), ("XX", "+02"), ("XX", "+02:00"), ("XXX", "+0200"), ("XXX", "+02"), ("X", "GMT"), ("z", ""),
        ("z", "Europe/Paris"),
    ],
)  # fmt: skip
def test_zones_that_java_refuses(letters: str, zone: str) -> None:
    """A zone of another letter's grammar is no date of the pattern."""
    with pytest.raises(DataError, match="no date of this pattern"):
        read(f"{AT} {letters}", f"{TEN} {zone}")


@pytest.mark.parametrize(
    ("pattern", "text", "ms"),
    [
        ("yyyy-MM-dd", "1582-10-15", -12_219_292_800_000),
        ("yyyy-MM-dd", "1582-10-04", -12_219_379_200_000),
        ("yyyy-MM-dd", "1582-10-10", -12_218_860_800_000),
        ("yyyy-MM-dd", "1500-02-29", -14_825_894_400_000),
        ("yyyy-MM-dd", "0001-01-01", -62_135_769_600_000),
        ("yyyy-MM-dd", "0000-01-01", -62_167_392_000_000),
        ("yyyy-MM-dd", "10000-01-01", 253_402_300_800_000),
        ("yyyy-MM-dd", "292278994-08-17", 9_223_372_036_828_800_000),
        ("yyyy-MM-dd HH:mm z", "1850-07-01 00:00 CEST", -3_771_194_400_000),
        ("yyyy-MM-dd HH:mm z", "12000-07-01 00:00 EDT", 316_531_944_000_000),
        ("EEE yyyy", "Tue 2020", 1_578_355_200_000),
        ("yyyy", "1E3", -30_609_792_000_000),
        ("yyyy-MM-dd", "  2025-7- 16 and more", 1_752_624_000_000),
        ("yyyyMMddHHmm", "202507161000", TEN_MS),
        ("d MMM yyyy", "16 july 2025", 1_752_624_000_000),
        ("hh:mm a HH", "11:00 PM 05", 18_000_000),
        ("HH hh:mm a", "05 11:00 PM", 82_800_000),
        ("s", "99999999999", 1_215_752_191_000),
        ("HH:mm:ss.SSS", "24:61:61.1500", 90_122_500),
    ],
)
def test_dates(pattern: str, text: str, ms: int) -> None:
    """Also before 1582, by the Julian calendar, after 9999, and beyond the bounds of months and hours."""
    assert read(pattern, text) == ms


@pytest.mark.parametrize(
    ("pattern", "ms", "text"),
    [
        ("yyyy-MM-dd", -12_219_292_800_001, "1582-10-04"),
        ("yyyy-MM-dd EEE", -12_219_292_800_000, "1582-10-15 Fri"),
        ("yyyy-MM-dd", -62_135_769_600_001, "0001-12-31"),
        ("y-M-d", -62_135_769_600_000, "1-1-1"),
        ("yyyy-MM-dd HH:mm:ss", 253_402_318_799_000, "10000-01-01 04:59:59"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", (1 << 63) - 1, "292278994-08-17T07:12:55.807Z"),
        ("yyyy", -(1 << 63), "292269055"),
        ("yy MMMM EEEE h a z zzzz Z X", TEN_MS, "25 July Wednesday 10 AM UTC Coordinated Universal Time +0000 Z"),
    ],
)
def test_written_dates(pattern: str, ms: int, text: str) -> None:
    """Every moment that 64 bits of milliseconds hold has a text."""
    assert DateFormat(pattern, NOW_MS).format(ms) == text


@pytest.mark.parametrize(
    ("now", "text", "year"),
    [("2025-11-24", "45", 1945), ("2025-11-24", "44", 2044), ("2026-11-24", "46", 1946), ("2036-11-24", "55", 2055),
     ("2099-11-24", "18", 2118), ("2025-11-24", "5", 5), ("2025-11-24", "045", 45)],
)  # fmt: skip
def test_years_of_two_digits_slide_with_the_time(now: str, text: str, year: int) -> None:
    """They are of the hundred years that begin 80 years before now; on the day itself the whole date decides."""
    now_ms = read("yyyy-MM-dd", now)
    assert moment_of(read("yy-MM-dd", f"{text}-12-01", now_ms)).year == year


def test_the_first_of_the_hundred_years_is_split() -> None:
    """Of the year in which they begin, days before are a century later."""
    assert [moment_of(read("yy-MM-dd", f"45-11-{day}")).year for day in ("23", "25")] == [2045, 1945]


@pytest.mark.parametrize(
    "text", ["1" * 1_001, "2025-01-01" + " " * 5_000, "9" * 999, "9999999999-01-01", "1E999999-01-01", "-" * 500]
)
def test_texts_that_are_no_dates(text: str) -> None:
    """A record's text may have any length, and a year any size; what has no ms in 64 bits is refused."""
    with pytest.raises(DataError):
        read("yyyy-MM-dd", text)


def test_no_pattern_takes_long() -> None:
    """Each part is read once, from left to right: nothing is tried again."""
    hostile = DateFormat("y'1'M'1'd'1'H'1'm'1's'1'S" + "'1'y" * 200, NOW_MS)
    began = time.thread_time()
    for _ in range(100):
        with pytest.raises(DataError):
            hostile.parse("1" * 1_000)
    assert time.thread_time() - began < 2


@pytest.mark.parametrize("pattern", ["yyyy-XXXX", "G", "yyyy'T", "YYYY"])
def test_patterns_that_are_refused(pattern: str) -> None:
    """What Java refuses, or is not known here, is said when the setting is checked."""
    with pytest.raises(ValueError, match=r"supported|closed"):
        DateFormat(pattern, NOW_MS)


@pytest.mark.parametrize("days", [0, -1, -141_427, -141_428, -719_529, 11_016, 2_932_897, 10**11, -(10**11)])
def test_days_are_counted_back(days: int) -> None:
    """A day that is counted from its date is the one that the date was made of."""
    moment = moment_of(days * DAY_MS)
    year = moment.year if days > -719_165 else 1 - moment.year
    assert month_start(year, moment.month, julian=days < -141_427) + moment.day - 1 == days
