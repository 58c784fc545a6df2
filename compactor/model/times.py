"""Times in ms since the epoch: the earliest and the latest of those that are known, and a time as text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, beyond which dates are not written."""


def earliest(*times: int | None) -> int | None:
    """Returns the smallest of `times`, None if all are None."""
    return min((time for time in times if time is not None), default=None)


def latest(*times: int | None) -> int | None:
    """Returns the greatest of `times`, None if all are None."""
    return max((time for time in times if time is not None), default=None)


def moment(at_ms: int | None) -> str:
    """Formats `at_ms` as a date and time (UTC); `never` for None and what is beyond the year 9999."""
    if at_ms is None or at_ms > LAST_MS:
        return "never"
    return datetime.fromtimestamp(max(at_ms, 0) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
