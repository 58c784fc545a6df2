"""Which offsets a micro-batch takes, and how they are split among tasks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compactor.model.record import TopicPartition
from connectors.errors import SourceChangedError
from connectors.source import plan
from connectors.source.plan import SourceRange, SourceTopic, TopicOffsets

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def topic(name: str, *offsets: int) -> dict[str, TopicOffsets]:
    return {name: TopicOffsets(f"id-{name}", dict(enumerate(offsets)))}


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


def test_a_partition_that_a_known_topic_gained_begins_at_0() -> None:
    """A partition that is new in the end position is read from offset 0."""
    found = plan.ranges("c", topic("a", 5), topic("a", 5, 3))
    assert found == [SourceRange("a", "id-a", 1, 0, 3)]


def test_a_topic_is_introduced_without_records() -> None:
    """A topic that is only in the end position is not read by that batch."""
    assert plan.ranges("c", topic("a", 5), {**topic("a", 6), **topic("b", 9)}) == [SourceRange("a", "id-a", 0, 5, 6)]


@pytest.mark.parametrize(
    "end", [{"a": TopicOffsets("other", {0: 9})}, topic("a", 4)], ids=["another id", "behind the start"]
)
def test_positions_of_two_topics_make_no_range(end: dict[str, TopicOffsets]) -> None:
    """Between positions with different topic ids, or backwards, nothing can be read."""
    with pytest.raises(SourceChangedError, match="new connector name"):
        plan.ranges("c", topic("a", 5), end)


def _ranges(*sizes: int) -> list[SourceRange]:
    return [SourceRange("t", "id", number, 100, 100 + size) for number, size in enumerate(sizes)]


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
def test_splits(sizes: tuple[int, ...], tasks: int, expected: list[list[int]]) -> None:
    """A big range is split over tasks, small ones share a task, and a cut leaves no sliver."""
    made = plan.splits(_ranges(*sizes), tasks, smallest=100)
    assert [[item.size for item in split] for split in made] == expected


@given(st.lists(st.integers(1, 10**6), max_size=60), st.integers(1, 16), st.integers(1, 50_000))
@example([4], 3, 1)
def test_splits_cover_everything_once(sizes: list[int], tasks: int, smallest: int) -> None:
    """Splits hold every offset once, no partition twice, are no more than tasks.max and about equally big."""
    made = plan.splits(_ranges(*sizes), tasks, smallest)
    for whole in _ranges(*sizes):
        pieces = sorted(item.lo for split in made for item in split if item.partition == whole.partition)
        ends = sorted(item.hi for split in made for item in split if item.partition == whole.partition)
        assert [*pieces, whole.hi] == [whole.lo, *ends]
    for split in made:
        assert len({item.partition for item in split}) == len(split)
    assert len(made) <= tasks
    shares = [sum(item.size for item in split) for split in made]
    assert not shares or max(shares) <= sum(sizes) / len(shares) * 1.5 + 1


def test_introducing_waits_for_every_log_start() -> None:
    """A topic one of whose log starts is not answered yet is not introduced."""
    assert plan.introduce(["a"], {"a": SourceTopic("id-a", 2)}, {A0: 3}) == {}
