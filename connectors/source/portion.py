"""The life of a connector's portion as a value: which offsets are to be read next, and how far that is. Pure.

docs/design.md ("A portion's states") draws which state follows which, and names the thread that sends each event.

A connector has one portion at a time, so nothing new is offered to one that is slow to publish. An event is a method of
`Portion`, which returns the portion after it; `Subscription` calls it under a lock.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import wraps
from typing import Any, Final, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import DEFECT, IngestError, KeyfoldError
from compactor.ingest.appends import Batch, up_to_holes
from connectors.errors import PortionLateError
from connectors.source import plan, read_route
from connectors.source.options import SourceOptions
from connectors.source.plan import Offsets, SourceRanges
from connectors.source.read_route import Route, Trouble

EventT = TypeVar("EventT", bound=Callable[..., "Portion"])


class State(Enum):
    """States of a portion."""

    # Nothing is planned: all that there is is the position, from which the next portion begins.
    IDLE = auto()
    # Its ranges are known, and wait to be part of the next micro-batch.
    OFFERED = auto()
    # The micro-batch that was planned last reads it.
    CLAIMED = auto()
    # What was read of it is in files, and waits for the connector's own thread.
    READY = auto()
    # It is in no micro-batch, or no longer: the connector's own thread has it read.
    READ_APART = auto()
    # Everything up to a pinned connector's end was taken. Nothing follows.
    FINISHED = auto()
    # Planning or reading has raised an error, which the connector's own thread raises. Nothing follows.
    FAILED = auto()
    # Its connector has ended. Nothing follows, and what comes late is dropped.
    CLOSED = auto()


OVER: Final = frozenset((State.FINISHED, State.FAILED, State.CLOSED))
"""States that are the last; FINISHED and FAILED end with their connector, which closes them."""


LATE_MS: Final = 60_000
"""How long a connector is read apart after its chain took longer than a micro-batch waits: the next portion may be
as late, and each costs the others that wait. After that one more portion of it shows whether it still is."""


class Offer(Struct, frozen=True):
    """What is to be read: `ranges`, with `options`, by `route`. `end` is the position once all of it is read."""

    options: SourceOptions
    ranges: SourceRanges
    end: Offsets
    route: Route = Route.MICRO_BATCH

    def without_holes(self, batch: Batch) -> Batch:
        """Returns what of `batch` continues each partition from the first offset of this offer."""
        return up_to_holes(batch, {each.topic_partition: each.lo for each in self.ranges})


def _event(*states: State) -> Callable[[EventT], EventT]:
    """Makes a method of Portion an event that can happen in `states`.

    A portion that is OVER otherwise stays as it is: its threads end one after the other, and come late. In any other
    state the event is a defect, and raises ValueError.
    """

    def decorate(method: EventT) -> EventT:
        @wraps(method)
        def event(portion: Portion, *args: Any, **named: Any) -> Portion:
            if portion.state in states:
                return method(portion, *args, **named)
            if portion.state in OVER:
                return portion
            raise ValueError(f"A portion that is {portion.state.name} cannot be {method.__name__}.")

        return cast("EventT", event)

    return decorate


class Portion(Struct, frozen=True):
    """The portion of one connector, and the position that it begins from.

    Each event returns the portion after it. `now_ms` is monotonic time; `arrived_ms` is wall time, for the files of an
    offer, and each offer has a number of its own in their names.
    """

    # What the connector reads.
    options: SourceOptions
    state: State = State.IDLE
    # Up to it everything was taken; None until the brokers have told the first offsets.
    position: Offsets | None = None
    # What is to be read; None if IDLE.
    offer: Offer | None = None
    # What was read, if READY.
    batch: Batch | None = None
    # Why it FAILED.
    error: BaseException | None = None
    trouble: Trouble = Trouble()
    # While it is set nothing is planned or claimed; what is claimed is still delivered.
    paused: bool = False
    # Of the last offer.
    number: int = 0
    # When (monotonic ms) the last offer was planned; the next one waits for the connector's interval.
    planned_ms: int | None = None
    # Until when (monotonic ms) portions are read apart, as the connector's chain was late.
    late_until_ms: int = 0

    @property
    def claimable(self) -> bool:
        """Whether there is an offer for the next micro-batch."""
        return self.state is State.OFFERED and not self.paused

    def is_plannable(self, now_ms: int) -> bool:
        """Returns whether the brokers are asked now: nothing is offered, and the connector's interval is over."""
        if self.paused or self.state is not State.IDLE or self.position is None:
            return False
        if self.options.pinned or self.trouble.keeps_apart:  # what is left of a micro-batch follows at once
            return True
        return self.planned_ms is None or now_ms - self.planned_ms >= self.options.interval_ms

    def most_offsets(self, *, shared: bool) -> int | None:
        """Returns how many offsets may be planned; None: any number. `shared`: others read through the same query."""
        return read_route.most_offsets(self.options.limits.max_offsets, self.trouble, shared=shared)

    def answer(self) -> Batch | Offer | None:
        """Returns what is to be taken (Batch) or read apart (Offer), if anything. Raises why the portion FAILED."""
        if self.state is State.FAILED and self.error is not None:
            raise self.error
        return self.offer if self.state is State.READ_APART else self.batch if self.state is State.READY else None

    @_event(State.IDLE)
    def planned(
        self, ranges: SourceRanges, end: Offsets, now_ms: int, arrived_ms: int, *, shared: bool, starts: bool = False
    ) -> Portion:
        """There are `ranges` to read, up to `end`; or none. `read_route.of_portion` says what the last two mean.

        Without any the position is `end` now, as topics that were found begin at their log starts.
        """
        if not ranges:
            finished = self.options.pinned and end is self.position
            return replace(self, state=State.FINISHED if finished else State.IDLE, position=end)
        late = now_ms < self.late_until_ms
        route = read_route.of_portion(plan.size(ranges), self.trouble, shared=shared, late=late, starts=starts)
        offer = Offer(self.options.of_batch(self.number + 1, arrived_ms), ranges, end, route)
        state = State.OFFERED if route is Route.MICRO_BATCH else State.READ_APART
        return replace(self, state=state, offer=offer, number=self.number + 1, planned_ms=now_ms)

    @_event(State.OFFERED)
    def claimed(self) -> Portion:
        """A micro-batch is planned with it."""
        return replace(self, state=State.CLAIMED)

    @_event(State.CLAIMED)
    def delivered(
        self, answer: Batch | KeyfoldError | None, now_ms: int, arrived_ms: int, *, ended_early: bool = False
    ) -> Portion:
        """The micro-batch has ended: with what it has read of the portion, why it has not, or None for nothing.

        PortionLateError is no failure: the portion is read apart, as one of which nothing was read. If the micro-batch
        has `ended_early`, or the batch is full, its tasks may have left holes: what comes after a hole is left out.
        """
        assert self.offer is not None
        if isinstance(answer, PortionLateError):
            return replace(self, late_until_ms=now_ms + LATE_MS)._unread(arrived_ms)
        if isinstance(answer, KeyfoldError):
            return self.failed(answer)
        batch = answer
        if answer is not None and (ended_early or answer.is_full):
            batch = self.offer.without_holes(answer)
        if batch is None or not batch.ranges:
            return self._unread(arrived_ms)
        return replace(self, state=State.READY, batch=batch)

    @_event(State.CLAIMED, State.FAILED, State.CLOSED)
    def abandoned(self, arrived_ms: int) -> Portion:
        """The micro-batch failed as a whole, perhaps because of this portion: it is read apart.

        A connector that has ended meanwhile stays suspect, for its next start.
        """
        suspect = replace(self, trouble=replace(self.trouble, suspect=True))
        return suspect if self.state in OVER else suspect._unread(arrived_ms)

    @_event(State.READY, State.READ_APART)
    def given_up(self, arrived_ms: int) -> Portion:
        """Nothing of it was taken, as the connector pauses while it is read apart, or filled: it is read again."""
        return replace(self, batch=None)._unread(arrived_ms)

    @_event(State.READY, State.READ_APART)
    def halved(self) -> Portion:
        """Nothing of it was taken, as it needs too much at once: half as many offsets are read next."""
        assert self.offer is not None
        most = max(1, plan.size(self.offer.ranges) // 2)
        return self._idle(self.position, replace(self.trouble, unread=True, most=most))

    @_event(State.READY, State.READ_APART, State.FAILED, State.CLOSED)
    def taken(self, batch: Batch, kept: Batch | None = None) -> Portion:
        """The engine has taken `batch`; the next portion begins at the end of its ranges.

        `kept` is what it has taken if some of `batch` waits for other partitions: that is read again at once, with what
        these have by then. What is missing of the offer is read apart next; if the batch is full, in small, by one
        reader, so that nothing is written after a hole, or, if a job's time was over, by a job for which its time
        suffices. Raises IngestError if the offer was to be read to its end, and the batch is not full.
        """
        assert self.offer is not None
        assert self.position is not None
        connector = self.options.connector
        left = plan.ranges(connector, plan.reached(self.position, batch.ranges), self.offer.end)
        suspect = self.trouble.suspect and bool(left)
        if self.state in OVER:
            return replace(self, trouble=replace(self.trouble, suspect=suspect))
        read = plan.size(self.offer.ranges) - plan.size(left)
        most = read_route.most_of_a_turn(self.trouble.most, read, batch.read_s, is_left=bool(left))
        waits = kept is not None and kept.ranges != batch.ranges
        if left and self.offer.route in (Route.DRIVER, Route.JOB) and not batch.is_full:
            rest = f"{left[0].topic_partition}, offsets [{left[0].lo}, {left[0].hi})"
            raise IngestError(f"Connector {connector}: {rest} were not read, and nothing says why.", DEFECT)
        if not left and not waits:
            return self._idle(self.offer.end, Trouble(most=most))
        is_slow = batch.is_full and read > 0 and batch.read_s >= read_route.TURN_S
        stalled = bool(left) and not is_slow and (batch.is_full or self.offer.route is Route.LARGE_JOB)
        trouble = Trouble(unread=True, stalled=stalled, suspect=suspect, most=most)
        reached = plan.reached(self.position, (kept or batch).ranges)
        return self._idle({**self.offer.end, **reached}, trouble)

    @_event(*State)
    def failed(self, error: BaseException) -> Portion:
        """Planning or reading has raised `error`."""
        return self if self.state in OVER else replace(self, state=State.FAILED, error=error)

    @_event(*State)
    def closed(self) -> Portion:
        """The connector ends."""
        return replace(self, state=State.CLOSED)

    def _unread(self, arrived_ms: int) -> Portion:
        """Returns the portion of which nothing was read: it is read apart, or planned smaller.

        Its files have another number: those of the first attempt are of a portion that never was.
        """
        assert self.offer is not None
        size = plan.size(self.offer.ranges)
        if size > read_route.APART_MAX:
            return self._idle(self.position, replace(self.trouble, unread=True))
        options = self.options.of_batch(self.number + 1, arrived_ms)
        offer = replace(self.offer, options=options, route=read_route.apart(size, self.trouble))
        return replace(self, state=State.READ_APART, offer=offer, number=self.number + 1)

    def _idle(self, position: Offsets | None, trouble: Trouble) -> Portion:
        return replace(self, state=State.IDLE, position=position, offer=None, batch=None, trouble=trouble)
