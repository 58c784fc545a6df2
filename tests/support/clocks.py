"""Clocks that a test moves."""

from __future__ import annotations


class Clock:
    """Seconds that pass only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
