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
        ...

    def monotonic_ms(self) -> int:
        """Returns ms that never fall: for durations and deadlines."""
        ...

    def wait_ms(self, ms: int, event: threading.Event) -> bool:
        """Waits until `event` is set or `ms` have passed; returns True if the event was set."""
        ...

    def sleep_ms(self, ms: int) -> None:
        """Waits for `ms`."""
        ...


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
