"""Limits how long a portion's chain may hold up the micro-batch that it is part of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.errors import PortionLateError, RegistryError

_LEFT = "It is read apart: no other connector waits for it."


class Patience:
    """What the chain of one portion may take: seconds of waiting for registries, and seconds in all.

    Both are limited, as they say different things. Waiting is limited tightly (`wait_s`): a registry that is well needs
    little of it however many records there are, so what waits longer is late for a reason that has nothing to do with
    their number. The time in all (`total_s`) is limited loosely: many records take their time, and to give up work that
    was nearly done costs all of it again.

    Once `stopped` returns True nothing is waited for any more. `waited_s` has the seconds that were waited so far. Used
    by one thread.
    """

    def __init__(
        self,
        wait_s: float = math.inf,
        total_s: float = math.inf,
        stopped: Callable[[], bool] = lambda: False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.waited_s = 0.0
        self._wait_s = wait_s
        self._clock = clock
        self._ends_ms = clock.monotonic_ms() + total_s * 1000  # it may be infinite
        self._stopped = stopped

    @property
    def left_s(self) -> float:
        """How long (s) a registry may still be waited for; 0 once it was stopped."""
        return 0.0 if self._stopped() else max(0.0, self._wait_s - self.waited_s)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts the block as waiting.

        Raises RegistryError if none is allowed, PortionLateError if none is left.
        """
        if self._wait_s == 0.0:
            raise RegistryError("A schema registry is to be asked, and a micro-batch of the driver's asks none.", _LEFT)
        if self.left_s <= 0.0:
            raise self.late()
        began_ms = self._clock.monotonic_ms()
        try:
            yield
        finally:
            self.waited_s += (self._clock.monotonic_ms() - began_ms) / 1000

    def check(self) -> None:
        """Raises PortionLateError if the time in all is over, or it was stopped."""
        if self._stopped():
            raise self.late()
        if self._clock.monotonic_ms() > self._ends_ms:
            raise PortionLateError("Its converters and transforms take longer than others can wait.", _LEFT)

    def late(self) -> PortionLateError:
        """Returns the error for a wait that was too long, or that a stop has ended."""
        if self._stopped():
            return PortionLateError("The chain was stopped.", _LEFT)
        return PortionLateError(f"Its schema registry did not answer all questions within {self._wait_s:g} s.", _LEFT)
