"""Reads the machine's clock, through a Protocol by which tests set their own. Its one unit is the ms.

What a library takes in seconds (librdkafka, threads) has a name that ends in `_s`.
"""

from __future__ import annotations

import threading
import time
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace


class Durations(Protocol):
    """Tells how time passes."""

    def monotonic_ms(self) -> int:
        """Returns ms that never fall: for durations and deadlines."""


class Clock(Durations, Protocol):
    """Tells the time, and waits."""

    def now_ms(self) -> int:
        """Returns wall time in ms since the epoch, as in a record's timestamp."""

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


def worked_s() -> float:
    """Returns the processor time (s) of the thread that calls it."""
    return time.thread_time()


class Deadline:
    """The end of a wait that takes `seconds` from now on: for loops over calls that take a time-out in seconds."""

    def __init__(self, seconds: float, clock: Durations = SYSTEM_CLOCK) -> None:
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


FORGIVEN_MS: Final = 10_000
"""How much lost time a loop's deadline leaves out in all. A worker of 3,000 columns on a loaded machine stood still for
7.8 s; with more than that, connectors that are well would wait for one that is not."""


class RunTime(Struct, frozen=True):
    """How long a loop has run that looks at the clock every `most_ms` at the latest, as long as it can. Pure.

    What passes between two looks counts up to `most_ms`. The rest is lost: other threads held the interpreter's lock,
    or other processes the machine. Once `forgiven_ms` were lost in all, everything counts, so each deadline comes.
    """

    most_ms: int
    forgiven_ms: int
    # When (monotonic ms) the loop looked last, and the ms that were lost by then.
    looked_ms: int
    lost_ms: int = 0

    def at(self, now_ms: int) -> int:
        """Returns the monotonic `now_ms` without what was lost; it stands still while the loop does not run."""
        return now_ms - self._lost(now_ms)

    def begun(self, now_ms: int) -> RunTime:
        """Returns the time if the loop begins at `now_ms`: what passed since the last look was a wait, and counts."""
        return replace(self, looked_ms=now_ms)

    def looked(self, now_ms: int) -> RunTime:
        """Returns the time after a look at `now_ms`."""
        return replace(self, looked_ms=now_ms, lost_ms=self._lost(now_ms))

    def _lost(self, now_ms: int) -> int:
        late_ms = max(0, now_ms - self.looked_ms - self.most_ms)
        return min(self.forgiven_ms, self.lost_ms + late_ms)


class LoopClock:
    """The time in which one loop has run (`RunTime`), which any thread may read; the loop calls `look`."""

    def __init__(self, most_ms: int, forgiven_ms: int = FORGIVEN_MS, clock: Durations = SYSTEM_CLOCK) -> None:
        self._clock = clock
        # Replaced as a whole, by the loop.
        self._time = RunTime(most_ms, forgiven_ms, clock.monotonic_ms())

    def monotonic_ms(self) -> int:
        """Returns ms that never fall, and stand still while the loop does not run."""
        return self._time.at(self._clock.monotonic_ms())

    def begin(self) -> None:
        """Notes that the loop begins, or goes on after a wait of another kind."""
        self._time = self._time.begun(self._clock.monotonic_ms())

    def look(self) -> None:
        """Notes that the loop runs."""
        self._time = self._time.looked(self._clock.monotonic_ms())
