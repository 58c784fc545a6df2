"""Calls again what the brokers did not answer: errors.retry.* as in Kafka Connect (KIP-298), and short waits.

errors.retry.*: the first wait is 300 ms, each next one twice as long; one above errors.retry.delay.max.ms is drawn
below it, so that many connectors do not come back together; errors.retry.timeout counts from the first try.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import structlog
from msgspec import Struct
from tenacity import RetryCallState, Retrying, retry_if_exception, retry_if_exception_type, retry_if_result, wait_fixed
from tenacity.retry import retry_base

from connectors.errors import UnreachableError

T = TypeVar("T")

FIRST_DELAY_MS: Final = 300
FOREVER: Final = -1
_SLICE_S: Final = 0.1
_NO_MORE: Final = -1.0
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
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> T:
        """Returns what `work` returns, called again while it raises UnreachableError and there is time.

        `work` must be such that doing it twice does no harm. `what` names it in the log. Raises the last
        UnreachableError when the time is up or `stopped` returns True, any other error at once.
        """
        began = clock()

        def wait_s(state: RetryCallState) -> float:
            wait = self.wait_ms(state.attempt_number, round((clock() - began) * 1000))
            return _NO_MORE if wait is None else wait / 1000

        def sleep_until_stopped(seconds: float) -> None:
            until = clock() + seconds
            while (left := until - clock()) > 0 and not stopped():
                sleep(min(_SLICE_S, left))

        attempts = _Attempts(
            retry=retry_if_exception_type(UnreachableError),
            wait=wait_s,
            stop=lambda state: state.upcoming_sleep < 0 or stopped(),
            before_sleep=lambda state: _log_retry(what, state),
            sleep=sleep_until_stopped,
            retry_error_callback=_last,
        )
        return attempts(work)

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
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Returns what `call` returns, called every `pause_s` seconds while `while_` holds for the error that it raises.

    Raises its last error after `deadline_s` seconds, an error for which `while_` does not hold at once.
    """
    return _until(retry_if_exception(while_), deadline_s, pause_s, clock, sleep)(call)


def poll_until(
    done: Callable[[T], bool],
    call: Callable[[], T],
    deadline_s: float,
    pause_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Returns the first answer of `call` for which `done` holds, or its last one after `deadline_s` seconds.

    It is called every `pause_s` seconds. Raises what `call` raises.
    """
    return _until(retry_if_result(lambda answer: not done(answer)), deadline_s, pause_s, clock, sleep)(call)


class _Attempts(Retrying):
    """Runs tenacity's loop; an error that comes out of it is in no cycle of references.

    Otherwise its traceback would hold the loop's state, and that the error: clients in the traceback's frames would
    live until Python collects garbage, and end in whatever thread does that.
    """

    def iter(self, retry_state: RetryCallState) -> Any:
        try:
            return super().iter(retry_state)
        except BaseException:
            retry_state.outcome = None
            raise


def _until(
    again: retry_base, deadline_s: float, pause_s: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> _Attempts:
    until = clock() + deadline_s
    return _Attempts(
        retry=again,
        wait=wait_fixed(pause_s),
        stop=lambda _: clock() >= until,
        sleep=sleep,
        retry_error_callback=_last,
    )


def _last(state: RetryCallState) -> Any:
    """Returns what the last try returned, or raises its error."""
    assert state.outcome is not None
    return state.outcome.result()


def _log_retry(what: str, state: RetryCallState) -> None:
    assert state.outcome is not None
    _log.warning(
        "brokers are asked again",
        what=what,
        tries=state.attempt_number,
        wait_ms=round(state.upcoming_sleep * 1000),
        error=str(state.outcome.exception()),
    )
