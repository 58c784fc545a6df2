"""Failed operations are tried again as KIP-298 says, and only those that nobody answered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compactor.errors import FencedError, KeyfoldError, OutcomeUnknownError, PositionMovedError
from connectors.errors import NotAllowedError, OutputError, UnreachableError
from connectors.kafka.retry import FOREVER, NEVER, Retry
from tests.support.clocks import SleepingClock

GONE = UnreachableError("away")


def fails(times: int, error: KeyfoldError = GONE) -> Callable[[], str]:
    """Work that fails so many times, then gives its answer."""
    left = [error] * times

    def work() -> str:
        if left:
            raise left.pop()
        return "answer"

    return work


def run(retry: Retry, work: Callable[[], str], stopped: Callable[[], bool] = lambda: False) -> tuple[str, float]:
    clock = SleepingClock()
    return retry.run(work, "test", stopped=stopped, clock=clock, sleep=clock.sleep), clock.now


def test_by_default_nothing_is_tried_again() -> None:
    """errors.retry.timeout=0, Kafka Connect's default."""
    with pytest.raises(UnreachableError):
        run(NEVER, fails(1))


def test_waits_double_from_300_ms() -> None:
    """300, 600, 1200 ms."""
    answer, passed = run(Retry(10_000), fails(3))
    assert (answer, round(passed, 3)) == ("answer", 2.1)


@pytest.mark.parametrize(
    ("retry", "tries", "passed_ms", "expected"),
    [
        (Retry(0), 1, 0, None),
        (Retry(1_000), 1, 0, 300),
        (Retry(1_000), 2, 300, 600),
        (Retry(1_000), 3, 900, 100),
        (Retry(1_000), 4, 1_000, None),
        (Retry(FOREVER), 8, 10**9, 38_400),
        (Retry(FOREVER), 9, 10**9, 59_999),
        (Retry(FOREVER), 10**6, 10**9, 59_999),
        (Retry(FOREVER, 100), 1, 0, 99),
    ],
)
def test_a_wait_keeps_both_limits(retry: Retry, tries: int, passed_ms: int, expected: int | None) -> None:
    """The last wait ends with the time there is; one above the longest is drawn below it."""
    assert retry.wait_ms(tries, passed_ms, draw=lambda most: most - 1) == expected


def test_the_last_error_comes_out_when_the_time_is_up() -> None:
    """After errors.retry.timeout the connector is started again with its own back-off."""
    clock = SleepingClock()
    with pytest.raises(UnreachableError):
        Retry(1_000).run(fails(10**6), "test", clock=clock, sleep=clock.sleep)
    assert round(clock.now, 3) == 1.0


def test_a_stop_ends_the_wait() -> None:
    """However long it would be."""
    asked = iter([False] * 7)
    with pytest.raises(UnreachableError):
        run(Retry(FOREVER), fails(10**6), lambda: next(asked, True))


@pytest.mark.parametrize(
    "error",
    [OutcomeUnknownError("x"), PositionMovedError("x"), FencedError("x"), OutputError("x"), NotAllowedError("x")],
    ids=lambda error: type(error).__name__,
)
def test_what_waiting_does_not_decide_is_not_tried_again(error: KeyfoldError) -> None:
    """An unknown outcome is read back, a moved position planned anew, a right or an owner is another's matter."""
    with pytest.raises(type(error)):
        run(Retry(FOREVER), fails(1, error))
