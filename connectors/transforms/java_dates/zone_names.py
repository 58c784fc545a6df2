"""Knows the names of time zones that Java reads in English, and how far from UTC each of them is.

Every line of the table, `zone_names.txt`, has a zone, what its names say of summer time, and those names, in the order
in which Java looks them up; UTC comes first, as it is the zone of the format. `0` is standard time, another number the
minutes that summer time is ahead of it; `zone`: the zone itself says which of the two it was, as its names are the same
for both, or it has no summer time now. The names are what `DateFormatSymbols` of Java 17 gives for `Locale.US`: of
zones that share a name, the first has it.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

_TABLE: Final = Path(__file__).with_suffix(".txt")
_BY_NAME: Final = {
    name: (zone, rule)
    for zone, rule, names in (line.split(" ", 2) for line in _TABLE.read_text(encoding="utf-8").splitlines())
    for name in names.split(", ")
}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # a time of the zone
_FIRST_MS: Final = -2_208_988_800_000
"""1900-01-01: before it Java takes the standard time of today."""
_CYCLE_MS: Final = 146_097 * 86_400_000
"""The 400 years after which days of the week, and with them the rules of summer time, come again."""
_LAST_MS: Final = 20 * _CYCLE_MS - 86_400_000
"""In the year 9969; `datetime` ends soon after."""


@lru_cache(maxsize=1)
def _names() -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, _BY_NAME)), re.IGNORECASE)


def name_at(text: str, at: int) -> str | None:
    """Returns the name of a zone that begins at `at` in `text`, as it is written there; None without one."""
    match = _names().match(text, at)
    return match[0] if match else None


def offset_ms(name: str, wall_ms: int) -> int:
    """Returns how far ahead of UTC the zone of `name` is at the local time `wall_ms` (since 1970-01-01T00:00 there)."""
    zone, rule = _BY_NAME[name.lower()]
    known = wall_ms if _FIRST_MS <= wall_ms <= _LAST_MS else (wall_ms - _LAST_MS) % _CYCLE_MS + _LAST_MS - _CYCLE_MS
    local = (_EPOCH + timedelta(milliseconds=known)).replace(tzinfo=ZoneInfo(zone))
    ahead, summer = local.utcoffset() or timedelta(), local.dst() or timedelta()
    if rule != "zone" or wall_ms < _FIRST_MS:
        ahead -= summer
    if rule != "zone":
        ahead += timedelta(minutes=int(rule))
    return ahead // timedelta(milliseconds=1)
