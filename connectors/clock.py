"""Reads the machine's clock, through a Protocol by which tests set their own."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time, and waits."""

    def now_ms(self) -> int:
        """Returns wall time in ms since the epoch, as in a record's timestamp."""
        ...

    def monotonic(self) -> float:
        """Returns seconds that never fall: for durations and deadlines."""
        ...

    def wait(self, seconds: float, event: threading.Event) -> bool:
        """Waits until `event` is set or `seconds` have passed; returns True if the event was set."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Returns wall time in ms since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Returns seconds of the system's monotonic clock."""
        return time.monotonic()

    def wait(self, seconds: float, event: threading.Event) -> bool:
        """Waits in real time; returns True if `event` was set in time."""
        return event.wait(max(seconds, 0.0))
