"""Failed operations are tried again as KIP-298 says, and only those that nobody answered."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from compactor.errors import FencedError, KeyfoldError, OutcomeUnknownError, PositionMovedError
from connectors.errors import NotAllowedError, OutputError, UnreachableError
from connectors.kafka.retry import FOREVER, NEVER, Retry, call_again, poll_until
from tests.support.clocks import ManualClock

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
    clock = ManualClock(0)
    return retry.run(work, "test", stopped=stopped, clock=clock), clock.at_ms / 1000


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
    clock = ManualClock(0)
    with pytest.raises(UnreachableError):
        Retry(1_000).run(fails(10**6), "test", clock=clock)
    assert clock.at_ms == 1_000


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


def test_each_try_is_logged_before_its_wait() -> None:
    """What was not answered, how often, why, and how long the next try is away."""
    with capture_logs() as logs:
        run(Retry(10_000), fails(2))
    assert [(line["event"], line["what"], line["tries"], line["wait_ms"], line["error"]) for line in logs] == [
        ("brokers are asked again", "test", 1, 300, "away"),
        ("brokers are asked again", "test", 2, 600, "away"),
    ]


class Client:
    """Something that has to be let go when it is no longer needed."""


@pytest.mark.parametrize("error", [UnreachableError, FencedError])
def test_an_error_that_comes_out_holds_no_client_beyond_its_handler(error: type[KeyfoldError]) -> None:
    """A producer of a failed try is dropped at once, not when Python next looks for cycles of references."""
    held: list[weakref.ref[Client]] = []

    def work() -> None:
        client = Client()
        held.append(weakref.ref(client))
        raise error("away")

    gc.disable()
    try:
        with suppress(KeyfoldError):
            run(Retry(1_000), work)  # type: ignore[arg-type]
        with suppress(KeyfoldError):
            call_again(work, lambda _: False, 0.0, 0.0)
        assert held
        assert [ref() for ref in held] == [None] * len(held)
    finally:
        gc.enable()


@pytest.mark.parametrize(("times", "passed"), [(0, 0.0), (3, 1.5), (9, 2.0)])
def test_what_settles_by_itself_is_asked_again_after_a_pause(times: int, passed: float) -> None:
    """Until there is an answer, or the deadline is over; then the last error comes out."""
    clock, work = ManualClock(0), fails(times)
    try:
        found = call_again(work, lambda error: isinstance(error, UnreachableError), 2.0, 0.5, clock)
    except UnreachableError:
        found = "none"
    assert (found, clock.at_ms / 1000) == ("answer" if passed < 2 else "none", passed)


def test_what_cannot_settle_is_not_asked_again() -> None:
    """Another error comes out at once."""
    with pytest.raises(FencedError):
        call_again(fails(1, FencedError("x")), lambda error: isinstance(error, UnreachableError), 60.0, 60.0)


@pytest.mark.parametrize(("deadline_s", "found"), [(60.0, 3), (math.inf, 3), (0.0, 1)])
def test_a_condition_is_waited_for_until_the_deadline(deadline_s: float, found: int) -> None:
    """The answer is the first that will do, or the last one that there was."""
    answers = iter(range(1, 100))
    assert poll_until(lambda number: number >= 3, lambda: next(answers), deadline_s, 0.0) == found
