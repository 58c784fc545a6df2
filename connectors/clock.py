"""The machine's clock, behind the seam through which a test sets its own."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What time it is, and waiting."""

    def now_ms(self) -> int:
        """Wall time in ms since the epoch, as in a record's timestamp."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever rise: for durations and deadlines."""
        ...

    def wait(self, seconds: float, event: threading.Event) -> bool:
        """Waits until `event` is set or `seconds` have passed; True where the event was set."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Wall time in ms since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds of the system's monotonic clock."""
        return time.monotonic()

    def wait(self, seconds: float, event: threading.Event) -> bool:
        """Waits really; True where `event` was set in time."""
        return event.wait(max(seconds, 0.0))
