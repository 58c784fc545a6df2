"""The states of a portion: what every event makes of each, as a table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from compactor.errors import IngestError, KeyfoldError
from compactor.ingest.appends import Batch
from connectors.errors import PortionLateError, SourceChangedError
from connectors.source.plan import SourceRange, SourceRanges, TopicOffsets
from connectors.source.portion import LATE_MS, OVER, Offer, Portion, State
from connectors.source.read_route import APART_MAX, TURN_S, Route, Trouble
from tests.support.source_options import source_options
from tests.support.subscribed import batch_of

OPTIONS = source_options(topics=["t"])
NOW_MS, ARRIVED_MS = 5_000, 7_000
AGAIN = OPTIONS.of_batch(1, ARRIVED_MS)
"""The options of the next offer."""
START, END = {"t": TopicOffsets("id", {0: 3})}, {"t": TopicOffsets("id", {0: 9})}
ERROR = SourceChangedError("Changed.", "Look.")
ROUTES = {State.OFFERED: Route.MICRO_BATCH, State.CLAIMED: Route.MICRO_BATCH, State.READY: Route.MICRO_BATCH}
"""READ_APART has one of the others."""


def offer(route: Route = Route.MICRO_BATCH, hi: int = 9) -> Offer:
    return Offer(OPTIONS, (SourceRange("t", "id", 0, 3, hi),), {"t": TopicOffsets("id", {0: hi})}, route)


WHOLE = batch_of(offer().ranges)
PART = batch_of(offer().ranges, up_to=5)


def portion(state: State) -> Portion:
    """A portion in `state`, as it gets there; one that FAILED or is CLOSED was read apart before."""
    made = Portion(OPTIONS, state, START)
    if state in (State.IDLE, State.FINISHED):
        return made
    made = replace(made, offer=offer(ROUTES.get(state, Route.DRIVER)))
    if state is State.READY:
        return replace(made, batch=WHOLE)
    return replace(made, error=ERROR) if state is State.FAILED else made


def pinned(before: Portion) -> Portion:
    return replace(before, options=replace(OPTIONS, pinned=True))


def planned(before: Portion, ranges: SourceRanges | None = None) -> Portion:
    made = offer()
    end = made.end if ranges is None else before.position or START
    return before.planned(made.ranges if ranges is None else ranges, end, NOW_MS, ARRIVED_MS, shared=False)


def delivered(before: Portion, answer: Batch | KeyfoldError | None, *, ended_early: bool = False) -> Portion:
    return before.delivered(answer, NOW_MS, ARRIVED_MS, ended_early=ended_early)


EVENTS: dict[str, Callable[[Portion], Portion]] = {
    "planned, by MICRO_BATCH": planned,
    "planned, by DRIVER": lambda before: planned(replace(before, late_until_ms=NOW_MS + 1)),
    "planned, nothing new": lambda before: planned(before, ()),
    "planned, nothing new, at the end": lambda before: planned(pinned(before), ()),
    "claimed": lambda before: before.claimed(),
    "delivered": lambda before: delivered(before, WHOLE),
    "delivered, nothing": lambda before: delivered(before, None),
    "delivered, without a range": lambda before: delivered(before, Batch(ranges=(), parts=())),
    "delivered, late": lambda before: delivered(before, PortionLateError("Late.")),
    "delivered, an error": lambda before: delivered(before, ERROR),
    "abandoned": lambda before: before.abandoned(ARRIVED_MS),
    "taken": lambda before: before.taken(WHOLE),
    "given_up": lambda before: before.given_up(ARRIVED_MS),
    "halved": lambda before: before.halved(),
    "failed": lambda before: before.failed(ERROR),
    "closed": lambda before: before.closed(),
}
ALLOWED: dict[tuple[State, str], State] = {
    (State.IDLE, "planned, by MICRO_BATCH"): State.OFFERED,
    (State.IDLE, "planned, by DRIVER"): State.READ_APART,
    (State.IDLE, "planned, nothing new"): State.IDLE,
    (State.IDLE, "planned, nothing new, at the end"): State.FINISHED,
    (State.OFFERED, "claimed"): State.CLAIMED,
    (State.CLAIMED, "delivered"): State.READY,
    (State.CLAIMED, "delivered, nothing"): State.READ_APART,
    (State.CLAIMED, "delivered, without a range"): State.READ_APART,
    (State.CLAIMED, "delivered, late"): State.READ_APART,
    (State.CLAIMED, "delivered, an error"): State.FAILED,
    (State.CLAIMED, "abandoned"): State.READ_APART,
    (State.READY, "taken"): State.IDLE,
    (State.READ_APART, "taken"): State.IDLE,
    (State.READ_APART, "given_up"): State.READ_APART,
    (State.READY, "given_up"): State.READ_APART,
    (State.READ_APART, "halved"): State.IDLE,
    (State.READY, "halved"): State.IDLE,
    **{(state, "failed"): State.FAILED for state in set(State) - OVER},
    **{(state, "closed"): State.CLOSED for state in State},
}


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_in_every_state(state: State, event: str) -> None:
    """It leads to the next state; once nothing follows, it changes none; otherwise it is a defect of the caller."""
    before = portion(state)
    if state not in OVER and (state, event) not in ALLOWED:
        with pytest.raises(ValueError, match=rf"that is {state.name} cannot be {event.split(',', maxsplit=1)[0]}\."):
            EVENTS[event](before)
        return
    after = EVENTS[event](before)
    assert after.state is ALLOWED.get((state, event), state)
    assert before == portion(state), "it is a value"


@pytest.mark.parametrize(("state", "holds"), [(State.READY, "batch"), (State.READ_APART, "offer")])
def test_what_was_taken_is_held_no_more(state: State, holds: str) -> None:
    """The position is the offer's end then, and nothing is wrong any more."""
    suspect = replace(portion(state), trouble=Trouble(suspect=True))
    assert getattr(suspect, holds) is not None
    assert suspect.taken(WHOLE) == Portion(OPTIONS, position=END)


@pytest.mark.parametrize("state", [State.READY, State.READ_APART])
def test_what_waits_for_other_partitions_is_read_again_at_once(state: State) -> None:
    """From the end of what was kept on, however the portion was read; a part that was not read stays a fault."""
    after = portion(state).taken(WHOLE, PART)
    assert after == Portion(OPTIONS, position={"t": TopicOffsets("id", {0: 5})}, trouble=Trouble(unread=True))
    assert portion(state).taken(WHOLE, WHOLE) == portion(state).taken(WHOLE)
    with pytest.raises(IngestError, match=re.escape("t-0, offsets [5, 9) were not read")):
        portion(State.READ_APART).taken(PART, PART)


@pytest.mark.parametrize(
    ("state", "route", "trouble"),
    [
        (State.READY, Route.MICRO_BATCH, Trouble(unread=True)),
        (State.READ_APART, Route.LARGE_JOB, Trouble(unread=True, stalled=True)),
    ],
)
def test_what_is_left_is_read_next(state: State, route: Route, trouble: Trouble) -> None:
    """A micro-batch may leave a part, and so may a large job, after which a small one finds out why."""
    before = replace(portion(state), offer=offer(route))
    assert before.taken(PART) == Portion(OPTIONS, position={"t": TopicOffsets("id", {0: 5})}, trouble=trouble)


@pytest.mark.parametrize("route", [Route.DRIVER, Route.JOB])
def test_what_is_read_to_its_end_may_leave_nothing(route: Route) -> None:
    """A connector would go round for ever."""
    with pytest.raises(IngestError, match=r"t-0, offsets \[5, 9\) were not read"):
        replace(portion(State.READ_APART), offer=offer(route)).taken(PART)


@pytest.mark.parametrize("route", Route)
def test_what_a_full_batch_leaves_is_read_in_small(route: Route) -> None:
    """By one reader: what others wrote behind a hole would be written in vain. It is nobody's defect."""
    before = replace(portion(State.READ_APART), offer=offer(route))
    after = before.taken(replace(PART, is_full=True))
    trouble = Trouble(unread=True, stalled=True)
    assert after == Portion(OPTIONS, position={"t": TopicOffsets("id", {0: 5})}, trouble=trouble)
    assert before.taken(replace(WHOLE, is_full=True)).trouble == Trouble()


def test_what_a_slow_job_leaves_is_read_by_jobs_for_which_its_turn_suffices() -> None:
    """Until one of them has read all that there was."""
    before = replace(portion(State.READ_APART), offer=offer(Route.LARGE_JOB))
    after = before.taken(replace(PART, is_full=True, read_s=TURN_S))
    assert after.trouble == Trouble(unread=True, most=2)
    again = planned(replace(after, position=START))
    assert again.offer is not None
    assert (again.state, again.offer.route) == (State.READ_APART, Route.LARGE_JOB)
    assert again.taken(replace(WHOLE, read_s=1.0)).trouble == Trouble(most=4)
    last = replace(again, trouble=Trouble(most=100))
    assert last.taken(replace(WHOLE, read_s=1.0)).trouble == Trouble()


@pytest.mark.parametrize("state", [State.READY, State.READ_APART])
def test_what_needs_too_much_at_once_is_read_by_halves(state: State) -> None:
    """From where it began; what was read of it is let go."""
    after = portion(state).halved()
    assert after == Portion(OPTIONS, position=START, trouble=Trouble(unread=True, most=3))


@pytest.mark.parametrize(
    ("event", "route", "suspect"), [("delivered, nothing", Route.DRIVER, False), ("abandoned", Route.JOB, True)]
)
def test_it_is_read_again_under_another_number(event: str, route: Route, suspect: bool) -> None:
    """The same ranges; if the micro-batch failed as a whole, never in the driver, which it could end."""
    after = EVENTS[event](portion(State.CLAIMED))
    assert after.offer == replace(offer(route), options=AGAIN)
    assert after.trouble == Trouble(suspect=suspect)


@pytest.mark.parametrize("event", ["delivered, nothing", "abandoned"])
def test_what_is_too_large_to_be_read_apart_is_planned_again(event: str) -> None:
    """Others would wait for it; the position stays, and the next portion follows at once."""
    after = EVENTS[event](replace(portion(State.CLAIMED), offer=offer(hi=4 + APART_MAX)))
    assert after == Portion(OPTIONS, position=START, trouble=Trouble(unread=True, suspect=event == "abandoned"))


@pytest.mark.parametrize("state", [State.FAILED, State.CLOSED])
def test_a_connector_that_has_ended_may_still_become_suspect_or_sound(state: State) -> None:
    """Its next start goes by that."""
    suspect = portion(state).abandoned(ARRIVED_MS)
    assert suspect.trouble == Trouble(suspect=True)
    assert suspect.taken(PART).trouble == Trouble(suspect=True)
    assert suspect.taken(WHOLE).trouble == Trouble()


@pytest.mark.parametrize(
    ("change", "now_ms", "plannable"),
    [
        ({}, 0, True),
        ({"paused": True}, 0, False),
        ({"position": None}, 0, False),
        ({"state": State.OFFERED}, 0, False),
        ({"planned_ms": 0}, 4_999, False),
        ({"planned_ms": 0}, 5_000, True),
        ({"planned_ms": 0, "trouble": Trouble(unread=True)}, 1, True),
    ],
)
def test_when_the_brokers_are_asked(change: dict[str, Any], now_ms: int, *, plannable: bool) -> None:
    """While nothing is offered, once the interval is over; what is left of a micro-batch waits for none."""
    idle = Portion(replace(OPTIONS, interval_ms=5_000), State.IDLE, START)
    assert replace(idle, **change).is_plannable(now_ms) is plannable


def test_a_late_chain_is_read_apart_for_a_while() -> None:
    """Up to LATE_MS after the micro-batch that it has held up; then one portion is part of a micro-batch again."""
    late = delivered(portion(State.CLAIMED), PortionLateError("Late.")).taken(WHOLE)
    ranges = offer().ranges
    states = [late.planned(ranges, END, at, 0, shared=True).state for at in (NOW_MS + LATE_MS - 1, NOW_MS + LATE_MS)]
    assert states == [State.READ_APART, State.OFFERED]


def test_what_comes_after_a_hole_is_left_out() -> None:
    """A micro-batch that has ended early may have left one: all that was read behind it is read again."""
    (read,) = WHOLE.ranges
    holed = replace(WHOLE, ranges=(replace(read, lo=4),))
    assert delivered(portion(State.CLAIMED), holed, ended_early=True).state is State.READ_APART
    assert delivered(portion(State.CLAIMED), replace(holed, is_full=True)).state is State.READ_APART
    assert delivered(portion(State.CLAIMED), holed).state is State.READY, "step 4 refuses it"
