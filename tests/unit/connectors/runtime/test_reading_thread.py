"""What a connector's own thread does between the deliveries of the worker's query; without Spark and brokers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast
from unittest.mock import Mock

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from compactor.errors import (
    FencedError,
    KeyfoldError,
    OutcomeUnknownError,
    PortionTooLargeError,
    PositionError,
    PublishInterruptedError,
    StoppedError,
    StorageError,
)
from compactor.ingest.appends import Batch
from connectors.errors import UnreachableError
from connectors.runtime import reading_thread as module
from connectors.runtime.components import TaskComponents
from connectors.runtime.reading_thread import (
    RENEW_MS,
    SETTLED_TICK_MS,
    SILENT_MS,
    TICK_MS,
    TOPICS_CHECK_MS,
    ReadingThread,
)
from connectors.source.options import SourceOptions
from connectors.source.portion import Offer
from connectors.source.subscription import Subscription
from tests.support.clocks import ManualClock
from tests.support.kafka import wait_until
from tests.support.source_options import source_options

TIMEOUT_S = 30.0
STEP_MS = 100
BATCH = Batch(ranges=(), parts=(), bytes_read=1)
OFFER = Offer(source_options(topics=["t"]), (), {})


class Delivered:
    """A subscription that delivers what a test says, one of them every STEP_MS, and finishes after the last."""

    def __init__(self, clock: ManualClock, *found: Batch | Offer | None) -> None:
        self._clock = clock
        self._left = list(found)
        self.taken_batches: list[Batch] = []
        self.waits: list[int] = []
        self.said: list[str] = []
        self.closed = False
        self.halves = True
        """Whether a portion has more than one offset."""
        self.left_out = frozenset[str]()
        self.silent_from_ms: int | None = None
        """When the source falls silent; None if it answers."""
        self.pinned_ends = None

    @property
    def silent_ms(self) -> int:
        since = self.silent_from_ms
        return 0 if since is None else max(0, self._clock.now_ms() - since)

    @property
    def finished(self) -> bool:
        return not self._left

    def next(self, seconds: float) -> Batch | Offer | None:
        self.waits.append(round(seconds * 1000))
        self._clock.advance(STEP_MS)
        return self._left.pop(0)

    def taken(self, batch: Batch, kept: Batch) -> None:
        assert kept is batch
        self.taken_batches.append(batch)

    def give_up(self) -> None:
        self.said.append("give up")

    def halve(self) -> bool:
        self.said.append("halve")
        return self.halves

    def pause(self) -> None:
        self.said.append("pause")

    def resume(self) -> None:
        self.said.append("resume")

    def leave_out(self, topics: frozenset[str]) -> None:
        self.left_out = topics

    def close(self) -> None:
        self.closed = True


class Reading:
    """A reading thread on stand-ins, and what its engine was asked, with the time (ms) since its start."""

    def __init__(self, *found: Batch | Offer | None) -> None:
        self.clock = ManualClock(0)
        self.calls: list[tuple[str, int]] = []
        self.subscription: Any = Delivered(self.clock, *found)
        self.engine = Mock()
        self.engine.is_settled.return_value = False
        self.engine.topics_aside = frozenset()
        self.engine.take.side_effect = self._take
        self.engine.tick.side_effect = lambda _: self._note("tick")
        self.engine.commit.side_effect = lambda *_: self.topics(found=True)
        self.left = threading.Event()
        self.paused = threading.Event()
        parts = TaskComponents(Mock(), Mock(), self.engine, Mock(), Mock())
        options, query = source_options(topics=["t"]), cast("Any", self)
        took = lambda: self._note("took")  # noqa: E731
        self.thread = ReadingThread(Mock(), query, options, parts, cast("Any", self.clock), took, self.paused)

    @contextmanager
    def subscribed(self, _options: SourceOptions, _stopped: threading.Event) -> Iterator[Subscription]:
        try:
            yield self.subscription
        finally:
            self.left.set()

    def run(self) -> None:
        self.thread.start()
        assert self.thread.join(TIMEOUT_S)

    def times(self, what: str) -> list[int]:
        return [at for name, at in self.calls if name == what]

    def topics(self, *, found: bool) -> bool:
        self._note("topics")
        return found

    def _take(self, batch: Batch, *_: object) -> Batch:
        self._note("take")
        return batch

    def _note(self, what: str) -> None:
        self.calls.append((what, self.clock.now_ms()))


def test_what_is_delivered_is_taken() -> None:
    """By the engine, then its position moves, then it is reported; and the thread ends where the subscription does."""
    full = replace(BATCH, is_full=True)
    reading = Reading(BATCH, None, full)
    reading.run()
    assert reading.thread.failure is None
    assert [name for name, _ in reading.calls if name in ("take", "took")] == ["take", "took"] * 2
    assert [call.args[0] for call in reading.engine.take.call_args_list] == [BATCH, full]
    assert reading.subscription.taken_batches == [BATCH, full]
    assert reading.left.is_set()


def test_topics_that_the_engine_sets_aside_are_read_no_more() -> None:
    """After a batch, or after a publish by the clock."""
    reading = Reading(BATCH, None)
    reading.engine.topics_aside = frozenset({"t"})
    reading.run()
    assert reading.subscription.left_out == {"t"}


def test_idle_it_publishes_what_time_lets_go() -> None:
    """At most every half second; a take publishes by itself."""
    reading = Reading(*[None] * 20)
    reading.run()
    assert reading.times("tick") == [100, 600, 1_100, 1_600]
    busy = Reading(*[BATCH] * 20)
    busy.run()
    assert busy.times("tick") == []


def test_it_waits_longer_where_nothing_is_left_to_publish() -> None:
    """Time lets go only what is ingested; what is delivered ends the wait."""
    reading = Reading(*[None] * 6)
    reading.engine.is_settled.side_effect = [True, True, False, False, True, True]
    reading.run()
    assert reading.subscription.waits == [*[SETTLED_TICK_MS] * 2, *[TICK_MS] * 2, *[SETTLED_TICK_MS] * 2]


@pytest.mark.parametrize("found", [BATCH, None], ids=["busy", "idle"])
def test_topics_are_looked_for_when_due(found: Batch | None) -> None:
    """Also where micro-batches never pause, and first when the take-over's look is old."""
    reading = Reading(*[found] * (3 * TOPICS_CHECK_MS // STEP_MS))
    reading.run()
    due = [TOPICS_CHECK_MS, 2 * TOPICS_CHECK_MS, 3 * TOPICS_CHECK_MS]
    assert reading.times("topics") == due


def test_producers_that_are_not_used_are_dropped_with_the_look_at_topics() -> None:
    """In the engine's turn, in which nothing is published; an idle connector would keep their threads for ever."""
    reading = Reading(*[None] * (TOPICS_CHECK_MS // STEP_MS))
    reading.run()
    broker, state = cast("Any", reading.thread._broker), cast("Any", object())
    assert not broker.drop_unused.called
    decide = reading.engine.commit.call_args.args[0]
    assert decide(state) is broker.discover.return_value
    assert (broker.drop_unused.call_count, broker.discover.call_args.args) == (1, (state,))


def test_a_look_at_topics_that_takes_long_is_repeated_later() -> None:
    """It takes a twentieth of the time at most: 5 s for ten thousand partitions, 100 s after its end."""
    steps = (2 * TOPICS_CHECK_MS + 100_000) // STEP_MS
    reading = Reading(*[None] * steps)
    broker = cast("Any", reading.thread._broker)
    broker.discover.side_effect = lambda _: reading.clock.advance(5_000)

    def commit(decide: Any, _now_ms: int) -> bool:
        found = reading.topics(found=True)
        decide(object())
        return found

    reading.engine.commit.side_effect = commit
    reading.run()
    assert reading.times("topics") == [TOPICS_CHECK_MS, TOPICS_CHECK_MS + 105_000]


def test_topics_that_cannot_be_looked_for_yet_are_soon() -> None:
    """While another turn of the engine is under way it is tried after each take, not half a minute later."""
    reading = Reading(*[BATCH] * (TOPICS_CHECK_MS // STEP_MS + 5))
    answers = iter([False, False, True])
    reading.engine.commit.side_effect = lambda *_: reading.topics(found=next(answers))
    reading.engine.is_settled.return_value = True
    reading.run()
    assert [at for at, ms in enumerate(reading.subscription.waits) if ms == TICK_MS] == [300, 301]
    assert reading.times("topics") == [TOPICS_CHECK_MS + each * STEP_MS for each in range(3)]


def test_a_source_that_falls_silent_is_looked_for_at_once() -> None:
    """Whether brokers are away is known half a minute earlier so; once for each silence, as the look may find them."""
    reading = Reading(*[None] * 100)
    reading.subscription.silent_from_ms = 1_000
    reading.engine.is_settled.return_value = True
    reading.run()
    assert reading.times("topics") == [1_000 + SILENT_MS]
    assert reading.subscription.waits == [*[SETTLED_TICK_MS] * 11, *[TICK_MS] * 89]


@pytest.mark.parametrize(
    ("error", "known_ms", "expected_ms"),
    [
        (UnreachableError, 0, 2_100),
        (UnreachableError, 60_000, 60_000),
        (PublishInterruptedError, 0, 2_100),
        (StorageError, 0, 0),
    ],
)
def test_an_error_of_the_brokers_says_since_when_they_are_silent(
    error: type[KeyfoldError], known_ms: int, expected_ms: int
) -> None:
    """The planner noticed it first: the state counts from then. A store that is away is another matter."""
    reading, raised = Reading(*[None] * 100), error("Away.")
    raised.silent_ms = known_ms
    reading.subscription.silent_from_ms = 900

    def look(*_: object) -> None:
        reading.clock.advance(100)
        raise raised

    reading.engine.commit.side_effect = look
    reading.run()
    failure = reading.thread.failure
    assert isinstance(failure, error)
    assert failure.silent_ms == expected_ms


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Sets what reads an offer apart."""
    return partial(monkeypatch.setattr, module, "read_apart")


def test_what_is_left_to_it_is_read_in_a_job_of_its_own(apart: Callable[[Any], None]) -> None:
    """Then taken as a delivery is; and an end is looked for meanwhile."""
    reading, alone = Reading(OFFER), list[Any]()

    def read_apart(_spark: Any, found: Offer, stopped: Callable[[], bool]) -> Batch:
        alone.append((found, stopped()))
        return BATCH

    apart(read_apart)
    reading.run()
    assert alone == [(OFFER, False)]
    assert Counter(name for name, _ in reading.calls)["take"] == 1


def test_a_pause_gives_up_what_is_read_apart(apart: Callable[[Any], None]) -> None:
    """It may wait for its turn, or be read, for long; it is read again once the connector is resumed."""
    reading, ended = Reading(OFFER, BATCH), threading.Event()

    def read_apart(_spark: Any, _found: Offer, stopped: Callable[[], bool]) -> Batch:
        reading.paused.set()
        wait_until(stopped, "the read is stopped", TIMEOUT_S)
        ended.set()
        return BATCH

    apart(read_apart)
    reading.thread.start()
    wait_until(lambda: reading.thread.is_paused, "it is paused", TIMEOUT_S)
    assert ended.is_set()
    assert reading.times("take") == []
    assert reading.subscription.said == ["resume", "give up", "pause"]
    reading.paused.clear()
    assert reading.thread.join(TIMEOUT_S)
    assert (reading.thread.failure, len(reading.times("take"))) == (None, 1)


def test_a_pause_gives_up_what_is_being_filled() -> None:
    """Nothing of it was taken: it is read again once the connector is resumed."""
    reading = Reading(BATCH, BATCH)

    def take(batch: Batch, _: int, paused: Callable[[], bool], pinned_ends: None) -> Batch:
        assert pinned_ends is reading.subscription.pinned_ends
        if not reading.subscription.said.count("pause"):
            assert not paused()
            reading.paused.set()
            assert paused()
            raise StoppedError("A stop came.")
        return batch

    reading.engine.take.side_effect = take
    reading.thread.start()
    wait_until(lambda: reading.thread.is_paused, "it is paused", TIMEOUT_S)
    assert reading.subscription.said == ["resume", "give up", "pause"]
    reading.paused.clear()
    assert reading.thread.join(TIMEOUT_S)
    assert (reading.thread.failure, reading.subscription.taken_batches) == (None, [BATCH])


@pytest.mark.parametrize("halves", [True, False])
def test_a_portion_that_needs_too_much_at_once_is_read_in_smaller_ones(*, halves: bool) -> None:
    """One of a single offset cannot be: the connector fails with what to set."""
    reading = Reading(BATCH, BATCH)
    reading.subscription.halves = halves
    reading.engine.take.side_effect = [PortionTooLargeError("Too much."), BATCH]
    reading.run()
    assert reading.subscription.said.count("halve") == 1
    if halves:
        assert (reading.thread.failure, reading.subscription.taken_batches) == (None, [BATCH])
    else:
        assert isinstance(reading.thread.failure, PortionTooLargeError)


def test_an_error_ends_it(apart: Callable[[Any], None]) -> None:
    """What reading raised is the thread's failure, and its subscription is left."""
    reading = Reading(OFFER, BATCH)
    apart(Mock(side_effect=StorageError("Full.")))
    reading.run()
    assert isinstance(reading.thread.failure, StorageError)
    assert (reading.left.is_set(), reading.times("take")) == (True, [])


def test_an_interrupt_ends_the_wait_for_a_delivery() -> None:
    """A connector that is stopped while nothing comes ends at once; nothing is taken any more."""
    reading, waits, closed = Reading(), threading.Event(), threading.Event()

    def waiting(_seconds: float) -> None:
        waits.set()
        assert closed.wait(TIMEOUT_S)

    reading.subscription = Mock(finished=False)
    reading.subscription.next.side_effect = waiting
    reading.subscription.close.side_effect = closed.set
    reading.thread.start()
    assert waits.wait(TIMEOUT_S)
    reading.thread.cancel()
    wait_until(reading.left.is_set, "its subscription is left", TIMEOUT_S)
    assert closed.is_set()
    assert (reading.thread.failure, reading.times("take")) == (None, [])


def test_while_it_is_paused_nothing_is_taken_or_published() -> None:
    """What is delivered waits; it is taken once the connector is resumed, and published by the clock again.

    That it is paused is reported at once.
    """
    reading = Reading(BATCH, None)
    reading.paused.set()
    resumed_at = 10 * STEP_MS

    def wait(ms: int, event: threading.Event) -> bool:
        assert reading.thread.is_paused
        assert reading.calls == [("took", 0)]
        reading.clock.advance(ms)
        if reading.clock.monotonic_ms() >= resumed_at:
            reading.paused.clear()
        return False

    reading.clock.wait_ms = wait  # type: ignore[method-assign]
    reading.run()
    assert not reading.thread.is_paused
    assert [call for call, _ in reading.calls][1:3] == ["take", "took"]
    assert min(at for _, at in reading.calls[1:]) >= resumed_at
    assert reading.subscription.said[:2] == ["pause", "resume"]


def test_a_pause_during_its_wait_is_followed_by_no_publish() -> None:
    """What time has let go by then is published once the connector is resumed."""
    reading = Reading(None, None)
    reading.engine.is_settled.side_effect = reading.paused.set  # asked before each wait
    reading.thread.start()
    wait_until(lambda: reading.thread.is_paused, "it is paused", TIMEOUT_S)
    assert reading.times("tick") == []
    reading.engine.is_settled.side_effect = None
    reading.paused.clear()
    assert reading.thread.join(TIMEOUT_S)
    assert len(reading.times("tick")) == 1


def test_a_pause_ends_its_wait_for_a_micro_batch() -> None:
    """It would otherwise be seen seconds later."""
    reading = Reading(None)
    reading.thread.notice_pause()
    reading.thread._subscription = reading.subscription
    reading.thread.notice_pause()
    assert reading.subscription.said == []
    reading.paused.set()
    reading.thread.notice_pause()
    assert reading.subscription.said == ["pause"]


def paused_for(reading: Reading, until_ms: int) -> Reading:
    """Runs it paused for so long; what it does meanwhile takes no time."""
    reading.paused.set()

    def wait(ms: int, event: threading.Event) -> bool:
        assert not event.is_set()
        reading.clock.advance(ms)
        if reading.clock.monotonic_ms() >= until_ms:
            reading.paused.clear()
        return False

    reading.clock.wait_ms = wait  # type: ignore[method-assign]
    reading.run()
    return reading


def test_while_it_is_paused_its_positions_are_kept_alive() -> None:
    """Brokers forget a position a week after its last commit: a connector may be paused for longer."""
    reading = paused_for(Reading(None), 3 * RENEW_MS)
    assert reading.engine.renew_positions.call_count == 3
    assert all(at >= 3 * RENEW_MS for at in reading.times("tick"))
    assert reading.thread.failure is None


@pytest.mark.parametrize("error", [UnreachableError, PublishInterruptedError, OutcomeUnknownError])
def test_brokers_that_do_not_answer_leave_it_paused(error: type[KeyfoldError]) -> None:
    """There is nothing that it would do with them; it asks again later."""
    reading = Reading(None)
    reading.engine.renew_positions.side_effect = error("No broker answers.", "Wait.")
    with capture_logs() as lines:
        paused_for(reading, 2 * RENEW_MS)
    assert reading.engine.renew_positions.call_count == 2
    assert reading.thread.failure is None
    assert [line["event"] for line in lines].count("positions not committed again") == 2


def test_topics_are_looked_for_before_positions_are_tried_again() -> None:
    """A group takes no position for a topic that was deleted: it is closed first, or those of all others would expire.

    Without a failure a paused connector does not look for topics.
    """
    reading, order = Reading(None), list[str]()
    answers = iter([None, PublishInterruptedError("A source topic is gone.", "Close it."), None, None])

    def renew(_now_ms: int) -> None:
        order.append("renew")
        error = next(answers)
        if error is not None:
            raise error

    reading.engine.renew_positions.side_effect = renew
    reading.engine.commit.side_effect = lambda *_: order.append("topics")
    paused_for(reading, 4 * RENEW_MS)
    assert order[:5] == ["renew", "renew", "topics", "renew", "renew"]
    assert reading.thread.failure is None


@pytest.mark.parametrize("error", [FencedError, PositionError, StorageError])
def test_what_would_end_a_running_connector_ends_a_paused_one(error: type[KeyfoldError]) -> None:
    """A newer owner, for one."""
    reading = Reading(None)
    reading.engine.renew_positions.side_effect = error("Gone.", "Look.")
    paused_for(reading, 2 * RENEW_MS)
    assert isinstance(reading.thread.failure, error)
