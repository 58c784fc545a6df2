"""What was published is visible once the last stable offset of each output partition has reached it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from compactor.errors import NotVisibleError
from compactor.model.log import OutputPoint, empty
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, Topic
from connectors.sinks.output_visibility import (
    VISIBLE_MS,
    HiddenEnd,
    await_visible,
    hidden_ends,
    published_ends,
    reason,
    require_stable,
)
from tests.support.clocks import ManualClock

A, B = TopicPartition("o", 0), TopicPartition("o", 1)


class Brokers:
    """Brokers whose last stable offsets of partition A rise by one a look, from `stable` on."""

    def __init__(self, stable: int) -> None:
        self.stable = stable
        self.asked: list[set[TopicPartition]] = []

    def ends(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append(set(places))
        self.stable += 1
        return {A: self.stable - 1, B: 7}


def _state(**closed: str) -> CatalogState:
    topics = {
        name: Topic(topic=name, topic_id=name, output=output, output_id="i", closed=closed.get(name))
        for name, output in (("t", "o"), ("u", "p"), ("raw", None))
    }
    logs = [replace(empty(TopicPartition(name, 0), 0, 0, 0), output=OutputPoint(5, 9)) for name in topics]
    return CatalogState(
        catalog_id="x", connector="c", topics=topics, logs=(*logs, empty(TopicPartition("t", 1), 0, 0, 0))
    )


@pytest.mark.parametrize(
    ("topics", "closed", "expected"),
    [
        ({"t", "u", "raw"}, {}, {A: 9, TopicPartition("p", 0): 9}),
        ({"t"}, {}, {A: 9}),
        ({"t", "u"}, {"t": "deleted"}, {TopicPartition("p", 0): 9}),
        ({"raw"}, {}, {}),
    ],
)
def test_what_was_published_lies_below_the_catalogs_output_offsets(
    topics: set[str], closed: dict[str, str], expected: dict[TopicPartition, int]
) -> None:
    """Partitions without an output, of closed topics, and those that nothing was sent to are left out."""
    assert published_ends(_state(**closed), topics) == expected


@pytest.mark.parametrize(("stable", "hidden"), [(8, True), (9, False), (12, False)])
def test_only_what_we_published_is_compared(stable: int, hidden: bool) -> None:
    """Another producer's open transaction above our records hides none of them."""
    assert hidden_ends({A: 9}, {A: stable}) == ((HiddenEnd(A, 9, stable),) if hidden else ())


def test_markers_that_come_late_are_waited_for() -> None:
    """Only the partition that lacks its marker is asked for again; nothing is asked for where nothing was published."""
    clock, brokers = ManualClock(0), Brokers(7)
    assert await_visible({A: 9, B: 7}, brokers.ends, lambda: False, clock) == ()
    assert brokers.asked == [{A, B}, {A}, {A}]
    assert await_visible({}, brokers.ends, lambda: False, clock) == ()
    assert len(brokers.asked) == 3


def test_markers_that_do_not_come_end_the_wait() -> None:
    """After VISIBLE_MS the partition is returned with how far it is visible; the wait is logged once."""
    clock, brokers = ManualClock(0), Brokers(-(10**6))
    with capture_logs() as lines:
        (hidden,) = await_visible({A: 9, B: 7}, brokers.ends, lambda: False, clock)
    assert (hidden.place, hidden.end) == (A, 9)
    assert clock.at_ms == pytest.approx(VISIBLE_MS, abs=200)
    assert [line["event"] for line in lines] == ["waiting until readers see what was published"]
    assert f"after 30 s o-0 is visible up to offset {hidden.visible}, published up to 9." in reason([hidden])
    assert "(1 more like it)" in reason([hidden, hidden])


def test_a_stop_ends_the_wait() -> None:
    """A worker that is told to end waits for no broker."""
    clock, brokers = ManualClock(0), Brokers(0)
    stops = iter([False, True])
    await_visible({A: 9}, brokers.ends, lambda: next(stops), clock)
    assert len(brokers.asked) == 2


class Hiding(Brokers):
    """Brokers whose partition A holds records up to offset 9, some of them in a transaction that is open."""

    def high_watermarks(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: {A: 9, B: 7}[place] for place in places}


@pytest.mark.parametrize(
    ("stable", "known", "hidden_up_to"),
    [
        pytest.param(9, 0, None, id="all is stable"),
        pytest.param(8, 0, None, id="it comes to be stable"),
        pytest.param(-(10**6), 0, 9, id="a transaction is open"),
        pytest.param(-(10**6), 11, 11, id="records are known above the high watermark"),
    ],
)
def test_nothing_may_be_hidden(stable: int, known: int, hidden_up_to: int | None) -> None:
    """If the last record decides, all below the high watermark must be visible, whichever producer wrote it."""
    brokers: Any = Hiding(stable)
    if hidden_up_to is None:
        require_stable("It cannot be told", {A: known, B: 0}, brokers, wait_ms=300)
        return
    with pytest.raises(NotVisibleError, match=f"It cannot be told: o-0 holds records up to offset {hidden_up_to}, "):
        require_stable("It cannot be told", {A: known, B: 0}, brokers, wait_ms=300)
