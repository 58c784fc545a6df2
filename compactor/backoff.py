"""Decides when what failed is tried again: partitions in quarantine, and snapshots, by one rule. Pure."""

from __future__ import annotations

from typing import Final

# Earlier tries would read all files of a damaged partition again and again while nothing has changed.
FIRST_RETRY_MS: Final = 60_000
# A partition that an operator has mended, or a location that answers again, waits at most an hour unnoticed.
LAST_RETRY_MS: Final = 3_600_000


def next_try_ms(failures: int, now_ms: int) -> int:
    """Returns the time in ms of the next try after `failures` failures in a row.

    It is one minute after the first failure, then twice as long each time, at most one hour.
    """
    return now_ms + min(FIRST_RETRY_MS << min(failures - 1, 16), LAST_RETRY_MS)


def waits(retry_ms: int, now_ms: int) -> bool:
    """Returns whether it is too early at `now_ms` for the try at `retry_ms`.

    A `retry_ms` more than an hour ahead comes from a clock that was set back since: then it is not too early.
    """
    return 0 < retry_ms - now_ms <= LAST_RETRY_MS
