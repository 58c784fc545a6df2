"""Which records of a portion wait for other partitions of their topic, as a table; schedules: test_fill_over_topics."""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

import numpy as np
import pytest

from compactor.ingest.waiting import Coming, Goals, cuts
from compactor.model.record import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def coming(tp: TopicPartition, end: int, placeholders: dict[int, int], highest: int) -> Coming:
    """Returns what a portion brings: offsets of records with a placeholder, with their ranks."""
    offsets, ranks = np.array(list(placeholders), np.int64), np.array(list(placeholders.values()), np.int64)
    return Coming(tp, end, offsets, ranks, highest)


class Case(NamedTuple):
    """What comes to A, B and C, to where each ends in the source, and from where on they wait."""

    logs: list[Coming]
    ends: list[int]
    waits: dict[TopicPartition, int]


OTHER: Final = coming(C, 0, {}, -1)
CASES: Final = {
    "all are read to their ends": Case([coming(A, 5, {4: 9}, 9), coming(B, 3, {}, 1), OTHER], [5, 3, 0], {}),
    "another is behind": Case([coming(A, 5, {1: 9, 4: 9}, 9), coming(B, 3, {}, 1), OTHER], [5, 4, 0], {A: 1}),
    "another brought nothing": Case([coming(A, 5, {4: 9}, 9), coming(B, 3, {}, -1), OTHER], [5, 4, 0], {A: 4}),
    "the other is past it": Case([coming(A, 5, {4: 8}, 9), coming(B, 3, {}, 9), OTHER], [9, 4, 0], {}),
    "an equal one of a higher partition comes after": Case([coming(A, 5, {4: 9}, 9), coming(B, 3, {}, 9)], [5, 4], {}),
    "an equal one of a lower partition comes before": Case(
        [coming(A, 5, {}, 9), coming(B, 3, {2: 9}, 9)], [6, 3], {B: 2}
    ),
    "two that are behind": Case([coming(A, 5, {0: 3, 4: 7}, 7), coming(B, 3, {0: 4, 2: 6}, 6)], [9, 9], {A: 4}),
    "one waits, and so does what comes after it elsewhere": Case(
        [coming(A, 5, {4: 5}, 9), coming(B, 5, {4: 7}, 9), coming(C, 1, {}, 2)], [5, 5, 9], {A: 4, B: 4}
    ),
    "what was cut is not passed": Case(
        [coming(A, 5, {1: 5}, 9), coming(B, 5, {4: 7}, 7), coming(C, 1, {}, 4)], [5, 5, 9], {A: 1, B: 4}
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_log_waits_for_those_that_may_have_an_earlier_record(case: Case) -> None:
    """From its first record on that another log may have one before."""
    assert cuts(case.logs, {}, dict(zip((A, B, C), case.ends, strict=False))) == case.waits


def test_a_record_waits_for_the_ends_that_were_asked_for_first() -> None:
    """Later ends are the goals of later records only."""
    logs = [coming(A, 5, {1: 9, 4: 9}, 9), coming(B, 3, {}, 1)]
    assert cuts(logs, {A: Goals(4, {B: 3})}, {A: 5, B: 9}) == {A: 4}
    assert cuts(logs, {A: Goals(2, {B: 4})}, {A: 5, B: 9}) == {A: 1}


def test_a_record_waits_for_a_log_that_waits_itself() -> None:
    """What is left out there may be before it, though the portion has brought later ones."""
    logs = [coming(A, 5, {4: 5}, 9), coming(B, 5, {4: 7}, 9), coming(C, 1, {}, 2)]
    assert cuts(logs, {B: Goals(9, {A: 5, C: 1})}, {A: 5, B: 5, C: 9}) == {A: 4, B: 4}


@pytest.mark.parametrize("seed", range(50))
def test_the_lowest_of_those_that_are_behind_never_waits(seed: int) -> None:
    """So some log goes on, whatever the order of the records in their partitions."""
    chance = Random(seed)
    for _ in range(40):
        logs = []
        for number in range(4):
            ranks = {offset: chance.randint(0, 6) for offset in range(chance.randint(0, 5))}
            highest = max([*ranks.values(), chance.randint(-1, 7)])
            logs.append(coming(TopicPartition("t", number), 5, ranks, highest))
        ends = {each.tp: chance.choice((5, 9)) for each in logs}
        goals = {each.tp: Goals(chance.randint(0, 5), dict.fromkeys(ends, 9)) for each in logs if chance.random() < 0.3}
        asked = [ends, *(each.ends for each in goals.values())]
        behind = [each for each in logs if any(each.end < goal[each.tp] for goal in asked)]
        waits = cuts(logs, goals, ends)
        assert not behind or min(behind, key=lambda each: (each.highest, each.tp)).tp not in waits
