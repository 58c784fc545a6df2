"""Reads the machine's clock, through a Protocol by which tests set their own. Its one unit is the ms.

What a library takes in seconds (librdkafka, threads) has a name that ends in `_s`.
"""

from __future__ import annotations

import threading
import time
from typing import Final, Protocol


class Clock(Protocol):
    """Tells the time, and waits."""

    def now_ms(self) -> int:
        """Returns wall time in ms since the epoch, as in a record's timestamp."""

    def monotonic_ms(self) -> int:
        """Returns ms that never fall: for durations and deadlines."""

    def wait_ms(self, ms: int, event: threading.Event) -> bool:
        """Waits until `event` is set or `ms` have passed; returns True if the event was set."""

    def sleep_ms(self, ms: int) -> None:
        """Waits for `ms`."""


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Returns wall time in ms since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Returns ms of the system's monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def wait_ms(self, ms: int, event: threading.Event) -> bool:
        """Waits in real time; returns True if `event` was set in time."""
        return event.wait(max(ms, 0) / 1000)

    def sleep_ms(self, ms: int) -> None:
        """Waits in real time."""
        time.sleep(max(ms, 0) / 1000)


SYSTEM_CLOCK: Final = SystemClock()


class Deadline:
    """The end of a wait that takes `seconds` from now on: for loops over calls that take a time-out in seconds."""

    def __init__(self, seconds: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._at_ms = clock.monotonic_ms() + seconds * 1000

    @property
    def left_s(self) -> float:
        """The seconds that are left; 0 once the deadline has passed."""
        return max(0.0, (self._at_ms - self._clock.monotonic_ms()) / 1000)

    @property
    def has_passed(self) -> bool:
        """Whether nothing is left."""
        return self.left_s == 0
