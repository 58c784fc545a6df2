"""The states of a portion: what every event makes of each, as a table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from compactor.errors import IngestError
from connectors.errors import SourceChangedError
from connectors.source.plan import SourceRange, TopicOffsets
from connectors.source.portion import OVER, Offer, Portion, State
from connectors.source.read_route import APART_MAX, Route, Trouble
from tests.support.source_options import source_options
from tests.support.subscribed import batch_of

OPTIONS = source_options(topics=["t"])
AGAIN = replace(OPTIONS, interval_ms=7)
"""Options under another number."""
START, END = {"t": TopicOffsets("id", {0: 3})}, {"t": TopicOffsets("id", {0: 9})}
ERROR = SourceChangedError("Changed.", "Look.")
ROUTES = {State.OFFERED: Route.QUERY, State.CLAIMED: Route.QUERY, State.READY: Route.QUERY}
"""READ_APART has one of the others."""


def offer(route: Route = Route.QUERY, hi: int = 9) -> Offer:
    return Offer(OPTIONS, (SourceRange("t", "id", 0, 3, hi),), {"t": TopicOffsets("id", {0: hi})}, route)


WHOLE = batch_of(offer().ranges)
PART = batch_of(offer().ranges, up_to=5)


def portion(state: State) -> Portion:
    """A portion in `state`, as it gets there; one that FAILED or is CLOSED was read apart before."""
    made = Portion(state, START)
    if state in (State.IDLE, State.FINISHED):
        return made
    made = replace(made, offer=offer(ROUTES.get(state, Route.DRIVER)))
    if state is State.READY:
        return replace(made, batch=WHOLE)
    return replace(made, error=ERROR) if state is State.FAILED else made


EVENTS: dict[str, Callable[[Portion], Portion]] = {
    "planned, by QUERY": lambda before: before.planned(offer()),
    "planned, by DRIVER": lambda before: before.planned(offer(Route.DRIVER)),
    "nothing_new": lambda before: before.nothing_new(START, finished=False),
    "nothing_new, at the end": lambda before: before.nothing_new(START, finished=True),
    "claimed": lambda before: before.claimed(),
    "delivered": lambda before: before.delivered(WHOLE),
    "unread": lambda before: before.unread(AGAIN),
    "abandoned": lambda before: before.abandoned(AGAIN),
    "taken": lambda before: before.taken(WHOLE.ranges),
    "failed": lambda before: before.failed(ERROR),
    "closed": lambda before: before.closed(),
}
ALLOWED: dict[tuple[State, str], State] = {
    (State.IDLE, "planned, by QUERY"): State.OFFERED,
    (State.IDLE, "planned, by DRIVER"): State.READ_APART,
    (State.IDLE, "nothing_new"): State.IDLE,
    (State.IDLE, "nothing_new, at the end"): State.FINISHED,
    (State.OFFERED, "claimed"): State.CLAIMED,
    (State.CLAIMED, "delivered"): State.READY,
    (State.CLAIMED, "unread"): State.READ_APART,
    (State.CLAIMED, "abandoned"): State.READ_APART,
    (State.READY, "taken"): State.IDLE,
    (State.READ_APART, "taken"): State.IDLE,
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
    assert suspect.taken(WHOLE.ranges) == Portion(position=END)


@pytest.mark.parametrize(
    ("state", "route", "trouble"),
    [
        (State.READY, Route.QUERY, Trouble(unread=True)),
        (State.READ_APART, Route.LARGE_JOB, Trouble(unread=True, stalled=True)),
    ],
)
def test_what_is_left_is_read_next(state: State, route: Route, trouble: Trouble) -> None:
    """A micro-batch may leave a part, and so may a large job, after which a small one finds out why."""
    before = replace(portion(state), offer=offer(route))
    assert before.taken(PART.ranges) == Portion(position={"t": TopicOffsets("id", {0: 5})}, trouble=trouble)


@pytest.mark.parametrize("route", [Route.DRIVER, Route.JOB])
def test_what_is_read_to_its_end_may_leave_nothing(route: Route) -> None:
    """A connector would go round for ever."""
    with pytest.raises(IngestError, match=r"t-0, offsets \[5, 9\) were not read"):
        replace(portion(State.READ_APART), offer=offer(route)).taken(PART.ranges)


@pytest.mark.parametrize(
    ("event", "route", "suspect"), [("unread", Route.DRIVER, False), ("abandoned", Route.JOB, True)]
)
def test_it_is_read_again_under_another_number(event: str, route: Route, suspect: bool) -> None:
    """The same ranges; if the micro-batch failed as a whole, never in the driver, which it could end."""
    after = EVENTS[event](portion(State.CLAIMED))
    assert after.offer == replace(offer(route), options=AGAIN)
    assert after.trouble == Trouble(suspect=suspect)


@pytest.mark.parametrize("event", ["unread", "abandoned"])
def test_what_is_too_large_to_be_read_apart_is_planned_again(event: str) -> None:
    """Others would wait for it; the position stays, and the next portion follows at once."""
    after = EVENTS[event](replace(portion(State.CLAIMED), offer=offer(hi=4 + APART_MAX)))
    assert after == Portion(position=START, trouble=Trouble(unread=True, suspect=event == "abandoned"))


@pytest.mark.parametrize("state", [State.FAILED, State.CLOSED])
def test_a_connector_that_has_ended_may_still_become_suspect_or_sound(state: State) -> None:
    """Its next start goes by that."""
    suspect = portion(state).abandoned(AGAIN)
    assert suspect.trouble == Trouble(suspect=True)
    assert suspect.taken(PART.ranges).trouble == Trouble(suspect=True)
    assert suspect.taken(WHOLE.ranges).trouble == Trouble()
