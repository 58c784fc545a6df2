"""Tells a run of a connector, or a worker, to end, with one of two strengths.

finish   nothing new begins; what is under way may finish, a fold as well
drop     nothing new begins; a fold ends at once, and so does the step that still runs at a given time

What is dropped never happened: the next run goes on from the catalog.
"""

from __future__ import annotations

import threading

from connectors.clock import Clock


class Stop(threading.Event):
    """Event that is set when a run, or a worker, is to end. Several stops only make it stronger."""

    def __init__(self) -> None:
        super().__init__()
        # On the monotonic clock, the earliest that `drop` got; None as long as everything under way may finish.
        self.drop_at_ms: int | None = None
        # Set with the event, by `wake` and by a pause: the thread that waits for it sees at once whatever happens.
        self.woken = threading.Event()
        # Set while the run is to take nothing in and publish nothing.
        self.paused = threading.Event()

    def set(self) -> None:
        """Sets the event, and `woken` after it."""
        super().set()
        self.woken.set()

    def finish(self) -> None:
        """Lets what is under way finish, unless it was to be dropped already."""
        self.set()

    def drop(self, at_ms: int) -> None:
        """Ends a fold at once, and the step that still runs at `at_ms`, on the monotonic clock."""
        self.drop_at_ms = at_ms if self.drop_at_ms is None else min(at_ms, self.drop_at_ms)
        self.set()

    @property
    def finishes(self) -> bool:
        """Whether it is set, and what is under way may finish."""
        return self.is_set() and self.drop_at_ms is None

    @property
    def drops(self) -> bool:
        """Whether it is set, and what is under way is dropped."""
        return self.is_set() and self.drop_at_ms is not None

    def drops_at(self, monotonic_ms: int) -> bool:
        """Returns whether a step that still runs at `monotonic_ms` is dropped."""
        return self.drop_at_ms is not None and monotonic_ms >= self.drop_at_ms

    def wake(self) -> None:
        """Wakes the threads that wait for `woken`; stops nothing."""
        self.woken.set()

    def is_set_within(self, ms: int, clock: Clock) -> bool:
        """Waits until something wakes it, for at most `ms`; returns whether it is set."""
        clock.wait_ms(ms, self.woken)
        self.woken.clear()  # before the caller looks: what wakes it from here on is seen with the next wait
        return self.is_set()
