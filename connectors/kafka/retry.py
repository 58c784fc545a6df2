"""Trying again what the brokers did not answer, as Kafka Connect does with a failed operation (KIP-298).

The first wait is 300 ms, each next one twice as long; one above errors.retry.delay.max.ms is drawn below it, so that
many connectors do not come back together; errors.retry.timeout counts from the first try.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

import structlog
from msgspec import Struct

from connectors.errors import UnreachableError

T = TypeVar("T")

FIRST_DELAY_MS: Final = 300
FOREVER: Final = -1
_SLICE_S: Final = 0.1
_log = structlog.get_logger()


class Retry(Struct, frozen=True):
    """`timeout_ms`: errors.retry.timeout, 0 never tries again, -1 always. `delay_max_ms`: errors.retry.delay.max.ms."""

    timeout_ms: int = 0
    delay_max_ms: int = 60_000

    def run(
        self,
        work: Callable[[], T],
        what: str,
        *,
        stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> T:
        """What `work` gives, called again while it raises UnreachableError and there is time.

        Only for what may be done twice: the last error comes out when the time is up, or `stopped`, any other at once.
        """
        began = clock()
        tries = 0
        while True:
            try:
                return work()
            except UnreachableError as error:
                tries += 1
                wait = self.wait_ms(tries, round((clock() - began) * 1000))
                if wait is None or stopped():
                    raise
                _log.warning("brokers are asked again", what=what, tries=tries, wait_ms=wait, error=str(error))
            until = clock() + wait / 1000
            while (left := until - clock()) > 0 and not stopped():
                sleep(min(_SLICE_S, left))

    def wait_ms(self, tries: int, passed_ms: int, draw: Callable[[int], int] = random.randrange) -> int | None:
        """How long to wait after so many failed tries, `passed_ms` after the first began; None: no more tries."""
        if self.timeout_ms != FOREVER and passed_ms >= self.timeout_ms:
            return None
        wait = FIRST_DELAY_MS << min(tries - 1, 40)
        if wait > self.delay_max_ms:
            wait = draw(self.delay_max_ms)
        return wait if self.timeout_ms == FOREVER else min(wait, self.timeout_ms - passed_ms)


NEVER: Final = Retry()
