"""Limits how long a portion's chain may hold up the micro-batch that it is part of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from connectors.chain_turns import ChainTurn
from connectors.clock import SYSTEM_CLOCK, Durations
from connectors.errors import PortionLateError, RegistryError

_LEFT = "It is read apart: no other connector waits for it."


class Patience:
    """What the chain of one portion may take: seconds of waiting for registries, and seconds in all.

    Both are limited, as they say different things. Waiting is limited tightly (`wait_s`): a registry that is well needs
    little of it however many records there are, so what waits longer is late for a reason that has nothing to do with
    their number. The time in all (`total_s`) is limited loosely: many records take their time, and to give up work that
    was nearly done costs all of it again.

    `worked_s` tells the processor time of the thread. It counts too, as `clock` may leave out time in which one long
    step of this chain kept all threads from running.

    Once `stopped` returns True nothing is waited for any more. `waited_s` has the seconds that were waited so far. With
    `turn` it also takes its turns with the chains of other threads: it has one while it is `working`, and none while it
    waits. Used by one thread.
    """

    def __init__(
        self,
        wait_s: float = math.inf,
        total_s: float = math.inf,
        stopped: Callable[[], bool] = lambda: False,
        clock: Durations = SYSTEM_CLOCK,
        turn: ChainTurn | None = None,
        worked_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.waited_s = 0.0
        self._wait_s = wait_s
        self._clock = clock
        self._ends_ms = clock.monotonic_ms() + total_s * 1000  # it may be infinite
        self._stopped = stopped
        self._turn = turn
        self._worked_s = worked_s
        self._may_work_until_s = worked_s() + total_s

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
        had_turn = self._turn is not None and self._turn.end()
        began_ms = self._clock.monotonic_ms()
        try:
            yield
        finally:
            self.waited_s += (self._clock.monotonic_ms() - began_ms) / 1000
            if had_turn:
                self._begin_turn()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Has its turn in the block, in which the chain works; waits for it before. Raises PortionLateError."""
        self._begin_turn()
        try:
            yield
        finally:
            if self._turn is not None:
                self._turn.end()

    def _begin_turn(self) -> None:
        if self._turn is not None and not self._turn.begin():
            raise self._overdue()

    def check(self) -> None:
        """Raises PortionLateError if the time in all is over, or it was stopped; others may have their turn here."""
        has_turn = self._turn is None or self._turn.look()
        if not has_turn or self._stopped() or self._is_over():
            raise self._overdue()

    def _is_over(self) -> bool:
        return self._clock.monotonic_ms() > self._ends_ms or self._worked_s() > self._may_work_until_s

    def _overdue(self) -> PortionLateError:
        if self._stopped():
            return self.late()
        return PortionLateError("Its converters and transforms take longer than others can wait.", _LEFT)

    def late(self) -> PortionLateError:
        """Returns the error for a wait that was too long, or that a stop has ended."""
        if self._stopped():
            return PortionLateError("The chain was stopped.", _LEFT)
        return PortionLateError(f"Its schema registry did not answer all questions within {self._wait_s:g} s.", _LEFT)
