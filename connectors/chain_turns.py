"""Lets the chains of a process work in turn: threads that all compute would each keep the others from Python's lock.

A thread that publishes, or answers a request, gives that lock away with each call that waits, and gets it back after
every thread that computes, after 5 ms each. With 68 chains of hostile records each such call took a third of a
second, and a publish has dozens. Of chains that take turns one computes at a time, which is as fast, since Python lets
one thread compute at a time anyway.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

SLICE_S: Final = 0.05
"""How long (s) a chain has its turn while another one waits. Most records take less than a millisecond."""
BREATH_S: Final = 0.005
"""How long (s) a chain pauses after work of more than SLICE_S without a look at its limit, which may have been one call
that held all threads, such as one that decodes 8 MiB of JSON. What others have to do meanwhile is done in the pause: a
request takes 2 ms. It costs the chain a tenth of its time at most."""
_LOOK_S: Final = 0.2
"""How often (s) a thread that waits for its turn looks whether it is to stop."""


class ChainTurns:
    """The turn of a process, which one chain has. Those that are `urgent` have a line of their own; both alternate."""

    def __init__(self) -> None:
        # Guards all of the following.
        self._lock = threading.Lock()
        # Whether a chain has its turn.
        self._is_taken = False
        # Those that wait, each by the event that gives it the turn: first those that are not urgent, then the others.
        self._lines: tuple[deque[threading.Event], deque[threading.Event]] = deque(), deque()
        # Whether the last one that had waited was urgent.
        self._was_urgent = False

    @property
    def waiting(self) -> int:
        """How many chains wait for their turn."""
        return sum(map(len, self._lines))

    def take(self, stopped: Callable[[], bool], *, urgent: bool) -> bool:
        """Waits for the turn and returns True; returns False, without it, once `stopped` returns True."""
        line, mine = self._lines[urgent], threading.Event()
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                return True
            line.append(mine)
        while not mine.wait(_LOOK_S):
            if stopped():
                with self._lock:
                    if not mine.is_set():
                        line.remove(mine)
                        return False
        return True

    def give(self) -> None:
        """Gives the turn to the next one."""
        with self._lock:
            first, second = self._lines[not self._was_urgent], self._lines[self._was_urgent]
            if first or second:
                self._was_urgent ^= bool(first)
                (first or second).popleft().set()
            else:
                self._is_taken = False


class ChainTurn:
    """The turns of one thread's chain: `begin` and `end` them, and `look` now and then in between."""

    def __init__(
        self,
        turns: ChainTurns,
        stopped: Callable[[], bool] = lambda: False,
        *,
        urgent: bool = False,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._turns = turns
        self._stopped = stopped
        self._urgent = urgent
        self._now = now
        self._pause = pause
        # Whether it is this chain's turn now, when (monotonic s) that began, and when it was looked at last.
        self._is_mine = False
        self._began = self._looked = 0.0

    def begin(self) -> bool:
        """Waits for the turn, and returns whether it has come: not if the chain was stopped."""
        self._is_mine = self._turns.take(self._stopped, urgent=self._urgent)
        self._began = self._looked = self._now()
        return self._is_mine

    def end(self) -> bool:
        """Ends the turn, and returns whether there was one."""
        was_mine, self._is_mine = self._is_mine, False
        if was_mine:
            self._turns.give()
        return was_mine

    def look(self) -> bool:
        """Lets others have their turn if they wait and this one has lasted; returns False once it was stopped."""
        if not self._is_mine:
            return True
        now = self._now()
        if now - self._looked >= SLICE_S:
            self._pause(BREATH_S)  # still in its turn, so that no other chain computes meanwhile
        self._looked = now
        if now - self._began >= SLICE_S and self._turns.waiting:
            self.end()
            return self.begin()
        return True


DRIVERS: Final = ChainTurns()
"""Those of the worker's own process, in which all connectors publish. Each of Spark's processes has one chain."""
