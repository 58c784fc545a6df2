"""Clocks that a test advances."""

from __future__ import annotations

import threading


class ManualClock:
    """Implements the engine's clock: it stands still until `advance`; a wait advances it instead of waiting."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.at_ms = now_ms

    def now_ms(self) -> int:
        """Returns the time in ms."""
        return self.at_ms

    def monotonic_ms(self) -> int:
        """Returns the same time, for durations."""
        return self.at_ms

    def wait_ms(self, ms: int, event: threading.Event) -> bool:
        """Advances by `ms` unless `event` is set; returns whether it is set."""
        if not event.is_set():
            self.sleep_ms(ms)
        return event.is_set()

    def sleep_ms(self, ms: int) -> None:
        """Advances by `ms`."""
        self.advance(max(ms, 0))

    def advance(self, ms: int) -> int:
        """Advances by `ms`, which may be negative; returns the new time in ms."""
        self.at_ms += ms
        return self.at_ms
