"""The life of a connector's portion as a value: which offsets are to be read next, and how far that is. Pure.

          planned, by QUERY             claimed             delivered
    IDLE ───────────────────▶ OFFERED ─────────▶ CLAIMED ───────────▶ READY
     ▲ │                                            │                   │
     │ │ planned, by another route                  │ unread,           │
     │ └───────────────────────▶ READ_APART ◀───────┘ abandoned         │
     │                                │                                 │
     └────────────────────────────────┴─────────────────────────────────┘
                                          taken

    IDLE ── nothing_new, at a pinned connector's end ──▶ FINISHED
    all of these ── failed ──▶ FAILED          all ── closed ──▶ CLOSED
    CLAIMED ── unread, abandoned, if it is too large to be read apart as it is ──▶ IDLE, to be planned smaller

A connector has one portion at a time, so nothing new is offered to one that is slow to publish. An event is a method of
`Portion`, which returns the portion after it; `Subscription` says which thread makes which.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import wraps
from typing import Concatenate, Final, ParamSpec

from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import DEFECT, IngestError
from compactor.ingest.appends import Batch, up_to_holes
from compactor.model.record import RangeRead
from connectors.source import plan, read_route
from connectors.source.options import SourceOptions
from connectors.source.plan import Offsets, Ranges
from connectors.source.read_route import Route, Trouble

P = ParamSpec("P")


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


class Offer(Struct, frozen=True):
    """What is to be read: `ranges`, with `options`, by `route`. `end` is the position once all of it is read."""

    options: SourceOptions
    ranges: Ranges
    end: Offsets
    route: Route = Route.QUERY

    def without_holes(self, batch: Batch) -> Batch:
        """Returns what of `batch` continues each partition from the first offset of this offer."""
        return up_to_holes(batch, {each.topic_partition: each.lo for each in self.ranges})


def _event(
    *states: State,
) -> Callable[[Callable[Concatenate[Portion, P], Portion]], Callable[Concatenate[Portion, P], Portion]]:
    """Makes a method of Portion an event that can happen in `states`.

    A portion that is OVER otherwise stays as it is: its threads end one after the other, and come late. In any other
    state the event is a defect, and raises ValueError.
    """

    def decorate(method: Callable[Concatenate[Portion, P], Portion]) -> Callable[Concatenate[Portion, P], Portion]:
        @wraps(method)
        def event(portion: Portion, /, *args: P.args, **named: P.kwargs) -> Portion:
            if portion.state in states:
                return method(portion, *args, **named)
            if portion.state in OVER:
                return portion
            raise ValueError(f"A portion that is {portion.state.name} cannot be {method.__name__}.")

        return event

    return decorate


class Portion(Struct, frozen=True):
    """The portion of one connector, and the position that it begins from."""

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

    @_event(State.IDLE)
    def planned(self, offer: Offer) -> Portion:
        """There are offsets to read."""
        state = State.OFFERED if offer.route is Route.QUERY else State.READ_APART
        return replace(self, state=state, offer=offer)

    @_event(State.IDLE)
    def nothing_new(self, end: Offsets, *, finished: bool) -> Portion:
        """There is nothing to read; the position is `end` now, as topics that were found begin at their log starts."""
        return replace(self, state=State.FINISHED if finished else State.IDLE, position=end)

    @_event(State.OFFERED)
    def claimed(self) -> Portion:
        """A micro-batch is planned with it."""
        return replace(self, state=State.CLAIMED)

    @_event(State.CLAIMED)
    def delivered(self, batch: Batch) -> Portion:
        """The micro-batch has read it, at least in part."""
        return replace(self, state=State.READY, batch=batch)

    @_event(State.CLAIMED)
    def unread(self, options: SourceOptions) -> Portion:
        """The micro-batch has read nothing of it. It is read again with `options`, which have another number.

        Files of the first attempt are of a portion that never was.
        """
        assert self.offer is not None
        size = plan.size(self.offer.ranges)
        if size > read_route.APART_MAX:
            return Portion(position=self.position, trouble=replace(self.trouble, unread=True))
        offer = replace(self.offer, options=options, route=read_route.apart(size, self.trouble))
        return replace(self, state=State.READ_APART, offer=offer)

    @_event(State.CLAIMED, State.FAILED, State.CLOSED)
    def abandoned(self, options: SourceOptions) -> Portion:
        """The micro-batch failed as a whole, perhaps because of this portion; see `unread`.

        A connector that has ended meanwhile stays suspect, for its next start.
        """
        suspect = replace(self, trouble=replace(self.trouble, suspect=True))
        return suspect.unread(options)

    @_event(State.READY, State.READ_APART, State.FAILED, State.CLOSED)
    def taken(self, ranges: tuple[RangeRead, ...]) -> Portion:
        """The engine has taken what was read, as `ranges` state it; the next portion begins there.

        Raises IngestError if it was to be read to its end, and was not.
        """
        assert self.offer is not None
        assert self.position is not None
        connector = self.offer.options.connector
        reached = plan.reached(self.position, ranges)
        left = plan.ranges(connector, reached, self.offer.end)
        suspect = self.trouble.suspect and bool(left)
        if self.state in OVER:
            return replace(self, trouble=replace(self.trouble, suspect=suspect))
        if not left:
            return Portion(position=self.offer.end)
        if self.offer.route in (Route.DRIVER, Route.JOB):
            rest = f"{left[0].topic_partition}, offsets [{left[0].lo}, {left[0].hi})"
            raise IngestError(f"Connector {connector}: {rest} were not read, and nothing says why.", DEFECT)
        trouble = Trouble(unread=True, stalled=self.offer.route is Route.LARGE_JOB, suspect=suspect)
        return Portion(position={**self.offer.end, **reached}, trouble=trouble)

    @_event(*State)
    def failed(self, error: BaseException) -> Portion:
        """Planning or reading has raised `error`."""
        return self if self.state in OVER else replace(self, state=State.FAILED, error=error)

    @_event(*State)
    def closed(self) -> Portion:
        """The connector ends."""
        return replace(self, state=State.CLOSED)
