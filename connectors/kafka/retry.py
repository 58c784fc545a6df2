"""Calls again what the brokers did not answer: errors.retry.* as in Kafka Connect (KIP-298), and short waits.

errors.retry.*: the first wait is 300 ms, each next one twice as long; one above errors.retry.delay.max.ms is drawn
below it, so that many connectors do not come back together; errors.retry.timeout counts from the first try.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, TypeVar

import structlog
from msgspec import Struct

from connectors.clock import SYSTEM_CLOCK, Clock, Deadline
from connectors.errors import UnreachableError

T = TypeVar("T")

# The first wait (ms) of errors.retry.*, as in Kafka Connect.
FIRST_DELAY_MS: Final = 300
FOREVER: Final = -1
"""A `timeout_ms` without a limit."""
# How long a wait goes on before it looks whether it is to stop.
_SLICE_MS: Final = 100
_log = structlog.get_logger()


class Retry(Struct, frozen=True):
    """Repeats a call that brokers did not answer.

    `timeout_ms`: errors.retry.timeout, 0 is no retry, -1 no limit. `delay_max_ms`: errors.retry.delay.max.ms.
    """

    timeout_ms: int = 0
    delay_max_ms: int = 60_000

    def run(
        self,
        work: Callable[[], T],
        what: str,
        *,
        stopped: Callable[[], bool] = lambda: False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> T:
        """Returns what `work` returns, called again while it raises UnreachableError and there is time.

        `work` must be such that doing it twice does no harm. `what` names it in the log. Raises the last
        UnreachableError when the time is up or `stopped` returns True, any other error at once.
        """
        began_ms, tries = clock.monotonic_ms(), 0
        while True:
            try:
                return work()
            except UnreachableError as error:
                tries += 1
                wait_ms = self.wait_ms(tries, clock.monotonic_ms() - began_ms)
                if wait_ms is None or stopped():
                    raise
                _log.warning("brokers are asked again", what=what, tries=tries, wait_ms=wait_ms, error=str(error))
            until_ms = clock.monotonic_ms() + wait_ms
            while (left_ms := until_ms - clock.monotonic_ms()) > 0 and not stopped():
                clock.sleep_ms(min(_SLICE_MS, left_ms))

    def wait_ms(self, tries: int, passed_ms: int, draw: Callable[[int], int] = random.randrange) -> int | None:
        """Returns how long to wait (ms) after `tries` failed tries, `passed_ms` after the first began.

        None if there is no time for another try.
        """
        if self.timeout_ms != FOREVER and passed_ms >= self.timeout_ms:
            return None
        wait = FIRST_DELAY_MS << min(tries - 1, 40)
        if wait > self.delay_max_ms:
            wait = draw(self.delay_max_ms)
        return wait if self.timeout_ms == FOREVER else min(wait, self.timeout_ms - passed_ms)


NEVER: Final = Retry()


def call_again(
    call: Callable[[], T],
    while_: Callable[[BaseException], bool],
    deadline_s: float,
    pause_s: float,
    clock: Clock = SYSTEM_CLOCK,
) -> T:
    """Returns what `call` returns, called every `pause_s` seconds while `while_` holds for the error that it raises.

    Raises its last error after `deadline_s` seconds, an error for which `while_` does not hold at once.
    """
    deadline = Deadline(deadline_s, clock)  # it may be infinite
    while True:
        try:
            return call()
        except BaseException as error:
            if not while_(error) or deadline.has_passed:
                raise
        clock.sleep_ms(round(pause_s * 1000))


def poll_until(
    done: Callable[[T], bool],
    call: Callable[[], T],
    deadline_s: float,
    pause_s: float,
) -> T:
    """Returns the first answer of `call` for which `done` holds, or its last one after `deadline_s` seconds.

    It is called every `pause_s` seconds. Raises what `call` raises.
    """
    deadline = Deadline(deadline_s)  # it may be infinite
    while not done(answer := call()) and not deadline.has_passed:
        SYSTEM_CLOCK.sleep_ms(round(pause_s * 1000))
    return answer
