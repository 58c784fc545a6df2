"""What the source decides: positions as text, admission, bundles, verdicts, and the planner over brokers in memory."""

from __future__ import annotations

import json
import pickle
import traceback
from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compactor.errors import FencedError, KeyfoldError
from compactor.model.record import TopicPartition
from compactor.spark.errors import tag, tagging, unwrap
from connectors.errors import ConfigError, DataLossError, SourceChangedError, UnreachableError
from connectors.source import plan
from connectors.source import source_errors as outcome
from connectors.source.offsets import Offsets, TopicOffsets, decode, encode
from connectors.source.options import SourceOptions, parse
from connectors.source.plan import Range, SourceTopic
from connectors.source.planner import Planner
from connectors.source.source_errors import RangeFault, Standing, TopicVerdict
from tests.support.clocks import SleepingClock
from tests.support.memory.cluster import MemoryCluster

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def options(**extra: str) -> SourceOptions:
    plain = {"connector": "c", "consumer.config": '{"bootstrap.servers": "127.0.0.1:1"}'}
    return parse({**plain, **({} if "topics.regex" in extra else {"topics": '["a", "b"]'}), **extra})


def planner(cluster: MemoryCluster, clock: SleepingClock | None = None, **extra: str) -> Planner:
    clock = clock or SleepingClock()
    return Planner(options(**extra), cluster, clock, clock.sleep)


def topic(name: str, *offsets: int) -> dict[str, TopicOffsets]:
    return {name: TopicOffsets(f"id-{name}", dict(enumerate(offsets)))}


# --- positions


def test_a_position_has_one_text() -> None:
    """Topics are ordered by name and partitions by number, whatever order they were found in."""
    many = {"b": TopicOffsets("ib", {10: 1, 2: 5}), "a": TopicOffsets("ia", {0: 7})}
    assert json.dumps(encode(many)) == (
        '{"a": {"id": "ia", "partitions": {"0": 7}}, "b": {"id": "ib", "partitions": {"2": 5, "10": 1}}}'
    )


def test_a_position_survives_its_text() -> None:
    """Reading a position back and writing it again gives the identical text, as Spark compares texts."""
    text = json.dumps(encode({**topic("b", 3), **topic("a", *range(12))}))
    assert json.dumps(encode(decode(json.loads(text)))) == text


# --- admission


@pytest.mark.parametrize(
    ("backlog", "limit", "taken"),
    [
        ({}, 10, {}),
        ({A0: 5}, None, {A0: 5}),
        ({A0: 5, A1: 5}, 10, {A0: 5, A1: 5}),
        ({A0: 100, A1: 100}, 10, {A0: 5, A1: 5}),
        ({A0: 900, A1: 100}, 100, {A0: 90, A1: 10}),
        ({A0: 1_000_000, A1: 1}, 100, {A0: 99, A1: 1}),
        ({A0: 1, A1: 1_000_000}, 100, {A0: 1, A1: 100}),
        ({A0: 50, A1: 0, B0: 50}, 10, {A0: 5, A1: 0, B0: 5}),
        ({A0: 10, A1: 10, B0: 10}, 2, {A0: 1, A1: 1, B0: 1}),
    ],
)
def test_admission(backlog: Mapping[TopicPartition, int], limit: int | None, taken: object) -> None:
    """A batch takes of each partition in proportion to its backlog, and at least one offset."""
    assert plan.admit(backlog, limit) == taken


@given(st.lists(st.integers(0, 10**12), max_size=30), st.integers(1, 10**7))
def test_admission_moves_everybody_and_keeps_the_limit(sizes: list[int], limit: int) -> None:
    """No partition gets more than it has, none with a backlog gets nothing, and the excess is those ones alone."""
    backlog = {TopicPartition("t", number): size for number, size in enumerate(sizes)}
    taken = plan.admit(backlog, limit)
    assert all(min(1, backlog[key]) <= taken[key] <= backlog[key] for key in backlog)
    assert sum(taken.values()) <= limit + sum(1 for size in sizes if size)
    assert sum(taken.values()) >= min(limit, sum(sizes))


# --- ranges and bundles


def test_a_partition_that_a_known_topic_gained_begins_at_0() -> None:
    """A partition that is new in the end position is read from offset 0."""
    found = plan.ranges("c", topic("a", 5), topic("a", 5, 3))
    assert found == [Range("a", "id-a", 1, 0, 3)]


def test_a_topic_is_introduced_without_records() -> None:
    """A topic that is only in the end position is not read by that batch."""
    assert plan.ranges("c", topic("a", 5), {**topic("a", 6), **topic("b", 9)}) == [Range("a", "id-a", 0, 5, 6)]


@pytest.mark.parametrize(
    "end", [{"a": TopicOffsets("other", {0: 9})}, topic("a", 4)], ids=["another id", "behind the start"]
)
def test_positions_of_two_topics_make_no_range(end: dict[str, TopicOffsets]) -> None:
    """Between positions with different topic ids, or backwards, nothing can be read."""
    with pytest.raises(SourceChangedError, match="new connector name"):
        plan.ranges("c", topic("a", 5), end)


def _ranges(*sizes: int) -> list[Range]:
    return [Range("t", "id", number, 100, 100 + size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "tasks", "expected"),
    [
        ((), 4, []),
        ((10,), 4, [[10]]),
        ((1000,), 4, [[250], [250], [250], [250]]),
        ((100,) * 8, 4, [[100, 100]] * 4),
        ((1000, 10, 10), 2, [[510], [490, 10, 10]]),
        ((100, 99, 101), 3, [[100], [99], [101]]),
        ((5, 5, 5), 1, [[5, 5, 5]]),
        ((149,), 2, [[149]]),
    ],
)
def test_bundles(sizes: tuple[int, ...], tasks: int, expected: list[list[int]]) -> None:
    """A big range is split over tasks, small ones share a task, and a cut leaves no sliver."""
    made = plan.bundles(_ranges(*sizes), tasks, smallest=100)
    assert [[item.size for item in bundle.ranges] for bundle in made] == expected


@given(st.lists(st.integers(1, 10**6), max_size=60), st.integers(1, 16), st.integers(1, 50_000))
@example([4], 3, 1)
def test_bundles_cover_everything_once(sizes: list[int], tasks: int, smallest: int) -> None:
    """Bundles hold every offset once, no partition twice, are no more than tasks.max and about equally big."""
    made = plan.bundles(_ranges(*sizes), tasks, smallest)
    for whole in _ranges(*sizes):
        pieces = sorted(item.lo for bundle in made for item in bundle.ranges if item.partition == whole.partition)
        ends = sorted(item.hi for bundle in made for item in bundle.ranges if item.partition == whole.partition)
        assert [*pieces, whole.hi] == [whole.lo, *ends]
    for bundle in made:
        assert len({item.partition for item in bundle.ranges}) == len(bundle.ranges)
    assert len(made) <= tasks
    loads = [sum(item.size for item in bundle.ranges) for bundle in made]
    assert not loads or max(loads) <= sum(sizes) / len(loads) * 1.5 + 1


# --- outcomes


@pytest.mark.parametrize(
    ("standing", "verdict"),
    [
        (Standing("id", 0, 100), TopicVerdict.WAIT),
        (Standing("id", 10, 20), TopicVerdict.WAIT),
        (Standing("id", None, None), TopicVerdict.WAIT),
        (Standing("id", 11, 100), TopicVerdict.LOST),
        (Standing("id", 0, 19), TopicVerdict.TRUNCATED),
        (Standing("id", 11, 19), TopicVerdict.TRUNCATED),
        (Standing("other", 0, 100), TopicVerdict.RECREATED),
        (Standing(None), TopicVerdict.DELETED),
    ],
)
def test_verdicts(standing: Standing, verdict: TopicVerdict) -> None:
    """What became of the range [10, 20) follows from topic id, log start and log end."""
    assert outcome.judge("id", 10, 20, standing) is verdict


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("_AUTO_OFFSET_RESET", RangeFault.LOOK),
        ("UNKNOWN_TOPIC_OR_PART", RangeFault.LOOK),
        ("TOPIC_AUTHORIZATION_FAILED", RangeFault.REFUSED),
        ("_BAD_MSG", RangeFault.DAMAGED),
        ("_TRANSPORT", RangeFault.WAIT),
        ("_ALL_BROKERS_DOWN", RangeFault.WAIT),
    ],
)
def test_faults(code: str, fault: RangeFault) -> None:
    """An outage is waited for, what may be a lost range is looked into, refusal and damage end the read."""
    assert outcome.classify(code) is fault


# --- the planner


def test_new_topics_begin_at_their_log_start_and_known_ones_at_their_start() -> None:
    """The initial position is the given starts, and the log start of every partition of other topics."""
    cluster = MemoryCluster()
    cluster.put("a", (0, 9))
    cluster.put("b", (4, 8), (0, 0))
    starts = json.dumps(encode({**topic("a", 7), **topic("gone", 3)}))
    assert planner(cluster, starts=starts).initial() == {**topic("a", 7), **topic("gone", 3), **topic("b", 4, 0)}


def test_nothing_new_gives_the_start_itself() -> None:
    """Without news the very start is returned, and the next question waits for the poll interval."""
    cluster, clock = MemoryCluster(), SleepingClock()
    cluster.put("a", (0, 9))
    source, start = planner(cluster, clock), topic("a", 9)
    for _ in range(8):
        assert source.latest(start, None) is start
    assert clock.now == pytest.approx(7 * 0.25)
    assert cluster.requests == 8 + 1


def test_a_deleted_topic_keeps_its_offsets() -> None:
    """A topic that is deleted while running stays where it was, and others go on."""
    cluster, clock = MemoryCluster(), SleepingClock()
    cluster.put("a", (0, 9))
    cluster.put("b", (0, 9))
    source = planner(cluster, clock)
    start = source.latest({**topic("a", 0), **topic("b", 0)}, None)
    del cluster.topics["b"]
    cluster.put("a", (0, 12))
    assert source.latest(start, None) == {**topic("a", 12), **topic("b", 9)}
    clock.sleep(100)
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
    cluster, clock = MemoryCluster(), SleepingClock()
    cluster.put("a", (0, 9))
    cluster.put("b", (0, 20), topic_id="id-2")
    source = planner(cluster, clock)
    start = source.latest({**topic("a", 0), **topic("b", 7)}, None)
    assert start == {**topic("a", 9), **topic("b", 7)}
    del cluster.topics["a"]
    cluster.put("c", (0, 3))
    clock.sleep(100)
    pinned = planner(cluster, SleepingClock(), starts=json.dumps(encode(topic("b", 7))))
    with pytest.raises(SourceChangedError, match="b was recreated"):
        pinned.initial()


def test_partitions_and_topics_are_picked_up_while_running() -> None:
    """A new partition is read from offset 0; a new topic is introduced at its log start, then read."""
    cluster, clock = MemoryCluster(), SleepingClock()
    cluster.put("a", (0, 9))
    source = planner(cluster, clock, **{"topics.regex": "[ab]|out.*", "exclude": '["out.c"]'})
    start = source.latest(topic("a", 9), None)
    assert start == topic("a", 9)
    cluster.put("a", (0, 9), (0, 2))
    cluster.put("b", (5, 8))
    cluster.put("abc", (0, 8))
    cluster.put("out.c", (0, 8))
    clock.sleep(5)
    introduced = source.latest(start, None)
    assert introduced == {**topic("a", 9, 2), **topic("b", 5)}
    assert source.latest(introduced, None) == {**topic("a", 9, 2), **topic("b", 8)}


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
    cluster, clock = MemoryCluster(), SleepingClock()
    cluster.put("b", (0, 4))
    starts = json.dumps(encode(topic("a", 5)))

    def sleep(seconds: float) -> None:
        clock.now += seconds
        cluster.put("a", (0, 9))

    source = Planner(options(starts=starts), cluster, clock, sleep)
    source.pin()
    assert source.latest(source.initial(), None)["a"].partitions == {0: 9}
    late = SleepingClock()
    cluster.topics.pop("a")
    source = planner(cluster, late, starts=starts)
    source.pin()
    assert 9 < late.now < 12
    assert source.latest(source.initial(), None)["a"].partitions == {0: 5}


def test_brokers_away_are_waited_for_and_then_named() -> None:
    """Without an answer there is nothing new until the time for retries is over; an answer starts it again."""
    cluster, clock = MemoryCluster(), SleepingClock()
    cluster.put("a", (0, 9))
    source = planner(cluster, clock, **{"read.timeout.ms": "10000"})
    start = source.latest(topic("a", 0), None)
    cluster.away = True
    clock.sleep(30)
    for _ in range(20):
        assert source.latest(start, None) is start
    cluster.away = False
    assert source.latest(start, None) is start
    cluster.away = True
    assert source.latest(start, None) is start
    clock.sleep(10)
    with pytest.raises(UnreachableError, match=r"Connector c: .*away"):
        source.latest(start, None)


@pytest.mark.parametrize("ask", [Planner.initial, Planner.pin])
def test_a_first_question_is_retried_and_then_fails(ask: object) -> None:
    """Where there is no position to fall back on, the planner itself retries until its time is over."""
    cluster, clock = MemoryCluster(), SleepingClock()
    cluster.away = True
    with pytest.raises(UnreachableError):
        ask(planner(cluster, clock, **{"read.timeout.ms": "10000"}))  # type: ignore[operator]
    assert clock.now == pytest.approx(10, abs=1)


def test_introducing_waits_for_every_log_start() -> None:
    """A topic one of whose log starts is not answered yet is not introduced."""
    assert plan.introduce(["a"], {"a": SourceTopic("id-a", 2)}, {A0: 3}) == {}


# --- options and errors


@pytest.mark.parametrize(
    ("extra", "names"),
    [
        ({"topicz": "x"}, "topicz"),
        ({"topics.regex": "a("}, "topics.regex"),
        ({"topics.regex": "a", "topics": "[]"}, "exactly one"),
        ({"tasks.max": "0"}, "tasks.max"),
        ({"max.offsets.per.trigger": "1e3"}, "max.offsets.per.trigger"),
        ({"on.data.loss": "maybe"}, "on.data.loss"),
        ({"starts": '{"a": 1}'}, "starts"),
        ({"consumer.config": "{"}, "consumer.config"),
    ],
)
def test_a_wrong_option_is_named(extra: dict[str, str], names: str) -> None:
    """An option that is unknown or has no sense is refused by its name."""
    with pytest.raises(ConfigError, match=names):
        options(**extra)


def test_options_do_not_show_secrets() -> None:
    """Neither the options nor an error about them print a client's settings."""
    secret = '{"bootstrap.servers": "h:1", "sasl.password": "hunter2"}'
    assert "hunter2" not in repr(options(**{"consumer.config": secret}))
    with pytest.raises(ConfigError) as caught:
        options(**{"consumer.config": '{"sasl.password": ["hunter2"]}'})
    assert "hunter2" not in str(caught.value)


def test_pinned_settings_win() -> None:
    """No override reaches isolation level, offset reset or auto commit; tuning is the user's."""
    configured = '{"isolation.level": "read_uncommitted", "auto.offset.reset": "earliest", "queued.min.messages": 7}'
    settings = options(**{"consumer.config": configured}).clients.consumer_settings()
    assert settings["isolation.level"] == "read_committed"
    assert settings["auto.offset.reset"] == "error"
    assert settings["queued.min.messages"] == 7


def test_options_and_bundles_travel() -> None:
    """What Spark sends to its workers survives pickling."""
    made = (options(starts=json.dumps(encode(topic("a", 1)))), plan.bundles(_ranges(5), 1))
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize(
    "error",
    [
        DataLossError("lost ${x} <y> \"q\" 'é'\nline", "do"),
        FencedError("newer owner", ""),
        UnreachableError("away", "start it"),
    ],
)
def test_an_error_comes_back_out_of_a_text(error: KeyfoldError) -> None:
    """From a traceback inside another exception's text, the same class, message and action come back."""
    found = unwrap(RuntimeError(f"Job aborted:\n Traceback…\n{error}\n{tag(error)}\n\nDriver stacktrace:"))
    assert type(found) is type(error)
    assert (found.message, found.action) == (error.message, error.action)


def test_an_error_is_found_along_its_causes() -> None:
    """Causes are followed, an error that is still itself is known, and any other gives None."""
    inner = DataLossError("lost", "do")
    outer = RuntimeError("outer")
    outer.__cause__ = inner
    assert unwrap(outer) is inner
    assert unwrap(RuntimeError("keyfold-error:nonsense")) is None


def test_a_tag_is_in_the_traceback_once() -> None:
    """An error is tagged as it leaves, once, also through two boundaries, and stays what it was."""
    with pytest.raises(DataLossError) as caught, tagging(), tagging():
        raise DataLossError("lost", "do")
    assert "".join(traceback.format_exception(caught.value)).count("keyfold-error:") == 1
