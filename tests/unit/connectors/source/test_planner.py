"""What the planner decides over brokers in memory."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from compactor.model.record import TopicPartition
from connectors.errors import SourceChangedError, UnreachableError
from connectors.source.plan import Offsets, TopicOffsets
from connectors.source.planner import Planner
from tests.support.clocks import ManualClock
from tests.support.memory.cluster import MemoryCluster
from tests.support.source_options import source_options

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def planner(cluster: MemoryCluster, clock: ManualClock | None = None, **named: Any) -> Planner:
    clock = clock or ManualClock(0)
    return Planner(source_options(topics=("a", "b"), **named), cluster, clock)


def topic(name: str, *offsets: int) -> dict[str, TopicOffsets]:
    return {name: TopicOffsets(f"id-{name}", dict(enumerate(offsets)))}


def test_new_topics_begin_at_their_log_start_and_known_ones_at_their_start() -> None:
    """The initial position is the given starts, and the log start of every partition of other topics."""
    cluster = MemoryCluster()
    cluster.put("a", (0, 9))
    cluster.put("b", (4, 8), (0, 0))
    starts = {**topic("a", 7), **topic("gone", 3)}
    assert planner(cluster, starts=starts).initial() == {**topic("a", 7), **topic("gone", 3), **topic("b", 4, 0)}


def test_nothing_new_gives_the_start_itself() -> None:
    """Without news the very start is returned; topics are not asked for again each time."""
    cluster = MemoryCluster()
    cluster.put("a", (0, 9))
    source, start = planner(cluster), topic("a", 9)
    for _ in range(8):
        assert source.latest(start, None) is start
    assert cluster.requests == 8 + 1


def test_a_deleted_topic_keeps_its_offsets() -> None:
    """A topic that is deleted while running stays where it was, and others go on."""
    cluster, clock = MemoryCluster(), ManualClock(0)
    cluster.put("a", (0, 9))
    cluster.put("b", (0, 9))
    source = planner(cluster, clock)
    start = source.latest({**topic("a", 0), **topic("b", 0)}, None)
    del cluster.topics["b"]
    cluster.put("a", (0, 12))
    assert source.latest(start, None) == {**topic("a", 12), **topic("b", 9)}
    clock.advance(100_000)
    cluster.put("a", (0, 13))
    assert source.latest(start, None) == {**topic("a", 13), **topic("b", 9)}


@pytest.mark.parametrize(
    ("log", "topic_id", "names"),
    [((0, 9), "id-2", ("recreated", "id-2", "id-a")), ((0, 6), "id-a", ("a-0", "6", "7"))],
    ids=["recreated", "log end below our position"],
)
def test_a_changed_topic_is_an_error(log: tuple[int, int], topic_id: str, names: tuple[str, ...]) -> None:
    """Another topic id, or a log that ends below our position, is refused by name, with what to do."""
    cluster = MemoryCluster()
    cluster.put("a", log, topic_id=topic_id)
    with pytest.raises(SourceChangedError) as caught:
        planner(cluster).latest(topic("a", 7), None)
    assert all(name in caught.value.message for name in (*names, "Connector c"))
    assert "new connector name" in caught.value.action


def test_a_recreated_topic_among_others_is_read_no_more() -> None:
    """It stays where it was, as a deleted one does, and the others go on; with no other left it is the error."""
    cluster, clock = MemoryCluster(), ManualClock(0)
    cluster.put("a", (0, 9))
    cluster.put("b", (0, 20), topic_id="id-2")
    source = planner(cluster, clock)
    start = source.latest({**topic("a", 0), **topic("b", 7)}, None)
    assert start == {**topic("a", 9), **topic("b", 7)}
    del cluster.topics["a"]
    cluster.put("c", (0, 3))
    clock.advance(100_000)
    pinned = planner(cluster, ManualClock(0), starts=topic("b", 7))
    with pytest.raises(SourceChangedError, match="b was recreated"):
        pinned.initial()


@pytest.mark.parametrize("pinned", [False, True])
def test_a_topic_that_is_left_out_stays_at_its_offsets(*, pinned: bool) -> None:
    """The connector has set it aside: it is not asked about, and the others are read to their ends."""
    cluster = MemoryCluster()
    cluster.put("a", (0, 9))
    cluster.put("b", (0, 9))
    source = planner(cluster)
    if pinned:
        source.pin()
    start = source.latest({**topic("a", 2), **topic("b", 3)}, 2)
    assert source.partitions(start) == [A0, B0]
    source.leave_out(frozenset({"a"}))
    assert source.partitions(start) == [B0]
    end = source.latest(start, None)
    assert (end["a"], end["b"]) == (start["a"], topic("b", 9)["b"])
    assert source.latest(end, None) is end


def test_partitions_and_topics_are_picked_up_while_running() -> None:
    """A new partition is read from offset 0; a new topic is introduced at its log start, then read."""
    cluster, clock = MemoryCluster(), ManualClock(0)
    cluster.put("a", (0, 9))
    source = planner(cluster, clock, regex="[ab]|out.*", exclude=["out.c"])
    start = source.latest(topic("a", 9), None)
    assert start == topic("a", 9)
    cluster.put("a", (0, 9), (0, 2))
    cluster.put("b", (5, 8))
    cluster.put("abc", (0, 8))
    cluster.put("out.c", (0, 8))
    clock.advance(5_000)
    introduced = source.latest(start, None)
    assert introduced == {**topic("a", 9, 2), **topic("b", 5)}
    assert source.latest(introduced, None) == {**topic("a", 9, 2), **topic("b", 8)}


def test_topics_that_take_long_are_looked_for_less_often() -> None:
    """A second to list and describe a thousand topics: every 20 s, where a quick answer is 5 s old at most."""
    cluster, clock = MemoryCluster(), ManualClock(0)
    cluster.put("a", (0, 9))
    matching, asked = cluster.matching, list[int]()

    def slow(pattern: Any) -> Any:
        asked.append(clock.at_ms)
        clock.advance(1_000)
        return matching(pattern)

    cluster.matching = slow  # type: ignore[method-assign]
    source = planner(cluster, clock, regex="[ab]")
    for second in range(50):
        clock.at_ms = max(clock.at_ms, second * 1_000)
        source.latest(topic("a", 9), None)
    assert asked == [0, 20_000, 40_000]


def test_a_topic_that_ends_below_the_position_is_looked_at_again() -> None:
    """What is known of the topics may be seconds old: it is another topic by now, and the others go on."""
    cluster, clock = MemoryCluster(), ManualClock(0)
    cluster.put("a", (0, 9))
    cluster.put("b", (0, 5))
    source = planner(cluster, clock)
    start = {**topic("a", 9), **topic("b", 5)}
    assert source.latest(start, None) == start
    cluster.put("a", (0, 2), topic_id="anew")
    cluster.put("b", (0, 7))
    assert source.latest(start, None) == {**start, **topic("b", 7)}


def test_pinned_ends_are_the_last() -> None:
    """After pinning, records and topics that come later are not read, and the start is returned at the end."""
    cluster = MemoryCluster()
    cluster.put("a", (0, 9))
    source = planner(cluster)
    source.pin()
    cluster.put("a", (0, 20))
    cluster.put("b", (0, 20))
    positions: list[Offsets] = [source.initial()]
    for _ in range(3):
        positions.append(source.latest(positions[-1], 6))
    assert positions == [topic("a", 0), topic("a", 6), topic("a", 9), topic("a", 9)]
    assert positions[3] is positions[2]


def test_a_known_topic_that_is_unknown_for_a_moment_is_pinned_too() -> None:
    """What pinning leaves out is never read: it asks again for ten seconds, then goes on without the topic."""
    cluster, clock = MemoryCluster(), ManualClock(0)
    cluster.put("b", (0, 4))
    starts = topic("a", 5)

    def wait(ms: int, _: threading.Event) -> bool:
        clock.advance(ms)
        cluster.put("a", (0, 9))
        return False

    clock.wait_ms = wait  # type: ignore[method-assign, assignment]
    source = Planner(source_options(topics=("a", "b"), starts=starts), cluster, clock)
    source.pin()
    assert source.latest(source.initial(), None)["a"].partitions == {0: 9}
    late = ManualClock(0)
    cluster.topics.pop("a")
    source = planner(cluster, late, starts=starts)
    source.pin()
    assert 9_000 < late.at_ms < 12_000
    assert source.latest(source.initial(), None)["a"].partitions == {0: 5}


def test_brokers_away_are_waited_for_and_then_named() -> None:
    """Without an answer there is nothing new until the time for retries is over; an answer starts it again."""
    cluster, clock = MemoryCluster(), ManualClock(0)
    cluster.put("a", (0, 9))
    source = planner(cluster, clock, timeout=10.0)
    start = source.latest(topic("a", 0), None)
    cluster.away = True
    clock.advance(30_000)
    for _ in range(20):
        assert source.latest(start, None) is start
    cluster.away = False
    assert source.latest(start, None) is start
    cluster.away = True
    assert source.latest(start, None) is start
    clock.advance(10_000)
    with pytest.raises(UnreachableError, match=r"Connector c: .*away"):
        source.latest(start, None)


def test_a_silence_is_known_from_its_first_question_on() -> None:
    """The error says how long it was by then, and so does the planner at any time; an answer ends it."""
    cluster, clock = MemoryCluster(), ManualClock(0)
    cluster.put("a", (0, 9))
    source = planner(cluster, clock, timeout=10.0)
    start = source.latest(topic("a", 0), None)
    silences = [source.silent_ms]
    for cluster.away in (True, False, True):
        source.latest(start, None)
        clock.advance(4_000)
        silences.append(source.silent_ms)
    assert silences == [0, 4_000, 0, 4_000]
    clock.advance(8_000)
    with pytest.raises(UnreachableError) as caught:
        source.latest(start, None)
    assert caught.value.silent_ms == 12_000
    with pytest.raises(UnreachableError) as caught:
        planner(cluster, clock, timeout=10.0).initial()
    assert caught.value.silent_ms == pytest.approx(10_000, abs=1_000)


def test_silence_is_said_when_it_begins_and_every_half_minute() -> None:
    """Brokers are asked several times a second: a line for each time would bury all others. Each reason is one."""
    cluster, clock = MemoryCluster(), ManualClock(0)
    cluster.put("a", (0, 9))
    source = planner(cluster, clock, timeout=1_000.0)
    start = source.latest(topic("a", 0), None)

    def lines(seconds: float) -> list[object]:
        with capture_logs() as told:
            for _ in range(round(seconds / 0.25)):
                source.latest(start, None)
                clock.advance(250)
        return [one["seconds"] for one in told if one["event"] == "source is not answered"]

    cluster.away = True
    assert lines(70) == [0, 0, 30, 60]  # first the ends are not known, then the topics neither
    for _ in range(3):  # an outage that follows soon is a new one
        cluster.away = False
        assert lines(1) == []
        cluster.away = True
        assert lines(5) == [0, 0]


def test_brokers_that_answer_in_turn_are_one_outage() -> None:
    """A number in the reason, of a time or a request, makes it no other outage either."""
    cluster, clock = MemoryCluster(), ManualClock(0)
    cluster.put("a", (0, 9))
    source = planner(cluster, clock, timeout=1_000.0)
    start = source.latest(topic("a", 0), None)
    with capture_logs() as told:
        for _ in range(40):
            cluster.away = not cluster.away
            source.latest(start, None)
            clock.advance(250)
        for number in range(40):
            source._note_failure(f"timed out after {number} ms")
    assert len([one for one in told if one["event"] == "source is not answered"]) <= 3


@pytest.mark.parametrize("ask", [Planner.initial, Planner.pin])
def test_a_first_question_is_retried_and_then_fails(ask: object) -> None:
    """Where there is no position to fall back on, the planner itself retries until its time is over."""
    cluster, clock = MemoryCluster(), ManualClock(0)
    cluster.away = True
    with pytest.raises(UnreachableError):
        ask(planner(cluster, clock, timeout=10.0))  # type: ignore[operator]
    assert clock.at_ms == pytest.approx(10_000, abs=1_000)
