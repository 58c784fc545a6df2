"""Up to which offset a log may be folded and sent."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compactor.model.log import Generation, PartitionLog, Run, empty, end_beyond, end_within
from compactor.model.record import TopicPartition
from compactor.publish.publishable import publishable
from compactor.settings import CompactionPolicy
from tests.support.logs import HOUR
from tests.support.logs import log as new_log

LOG = replace(empty(TopicPartition("t", 0), 0, 0, None), end=100, folded_end=10, published=10, clean_end=10)


@pytest.mark.parametrize(
    ("lag", "young", "expected"),
    [(0, 50, 100), (1, 50, 50), (5, 50, 50), (5, None, 100), (5, 10, 10), (5, 3, 10)],
)
def test_publishable_is_the_first_young_record_or_the_end(lag: int, young: int | None, expected: int) -> None:
    """Without a lag all is publishable; with one, what is below the first record inside it."""
    asked: list[int] = []

    def first_young(newest_ms: int) -> int | None:
        asked.append(newest_ms)
        return young

    assert publishable(LOG, CompactionPolicy(min_compaction_lag_ms=lag), 1000, first_young) == expected
    assert asked == ([1000 - lag] if lag else [])


@pytest.mark.parametrize(
    ("backlog_end", "bootstrap_fold", "expected"),
    [(101, True, 10), (100, True, 100), (None, True, 100), (101, False, 100)],
)
def test_a_backlog_is_read_before_it_is_folded(backlog_end: int | None, bootstrap_fold: bool, expected: int) -> None:
    """Nothing more is publishable until the ends of the first sight are ingested, unless bootstrap.fold is off."""
    log = replace(LOG, backlog_end=backlog_end)
    assert publishable(log, CompactionPolicy(), 0, lambda _: None, bootstrap_fold=bootstrap_fold) == expected
    if bootstrap_fold:
        assert publishable(log, CompactionPolicy(), 0, lambda _: None) == expected


def test_nothing_is_looked_for_where_all_is_folded() -> None:
    """An idle log is not read to learn that it has no young record."""
    log = replace(LOG, folded_end=100)
    policy = CompactionPolicy(min_compaction_lag_ms=5)
    assert publishable(log, policy, 0, lambda _: pytest.fail("looked")) == 100


def _with_runs() -> PartitionLog:
    bounds = ((10, 40, False), (40, 70, True), (70, 100, False))
    runs = (
        Run(start=start, end=end, level=0, files=(), records=0, bytes=0, folded=folded) for start, end, folded in bounds
    )
    return replace(LOG, runs=tuple(runs))


FOLDED = _with_runs()
"""Of its runs the middle one, [40, 70), was folded when it came."""


@pytest.mark.parametrize(
    ("folded_end", "young", "expected"), [(10, 60, 40), (10, 40, 40), (10, 70, 70), (10, 39, 39), (55, 60, 55)]
)
def test_no_fold_ends_inside_a_run_that_was_folded_when_it_came(folded_end: int, young: int, expected: int) -> None:
    """A lag that came later lets such a run go whole: inside it a key is gone because of a later record."""
    log = replace(FOLDED, folded_end=folded_end)
    assert publishable(log, CompactionPolicy(min_compaction_lag_ms=5), 1000, lambda _: young) == expected


@pytest.mark.parametrize(("offset", "within", "beyond"), [(39, 39, 39), (40, 40, 40), (41, 40, 70), (70, 70, 70)])
def test_ends_are_where_folded_runs_end(offset: int, within: int, beyond: int) -> None:
    """The next offset on either side that may be an end."""
    assert (end_within(FOLDED, offset), end_beyond(FOLDED, offset)) == (within, beyond)


@pytest.mark.parametrize(
    ("end", "stamps", "now", "expected"),
    [
        pytest.param(0, {}, 9 * HOUR, 0, id="testUndecidedTransactionalDataNotCleanable: open, nothing is read"),
        pytest.param(
            4, {3: 9 * HOUR}, 9 * HOUR, 3, id="testUndecidedTransactionalDataNotCleanable: decided, one record young"
        ),
        pytest.param(4, {3: 9 * HOUR}, 10 * HOUR, 4, id="testUndecidedTransactionalDataNotCleanable: a lag later"),
        pytest.param(8, {5: HOUR + 1}, 2 * HOUR, 5, id="rule 9, testCleanableOffsetsForTime: up to the first young"),
        pytest.param(8, {5: HOUR}, 2 * HOUR, 8, id="testCleanableOffsetsForShortTime: all is old enough"),
        pytest.param(8, {2: 2 * HOUR, 3: 0}, 2 * HOUR, 2, id="rule 9: what is behind a young record waits with it"),
    ],
)
def test_the_lag_ends_at_the_first_young_record(end: int, stamps: dict[int, int], now: int, expected: int) -> None:
    """KIP-58 by record: foldable is what lies below the first record that is younger than the lag."""

    def first_young(newest_ms: int) -> int | None:
        return min((offset for offset, stamp in stamps.items() if stamp > newest_ms), default=None)

    kept = new_log(published=0, end=end)
    assert publishable(kept, CompactionPolicy(min_compaction_lag_ms=HOUR), now, first_young) == expected


@pytest.mark.parametrize("lag", [0, -5])
def test_no_lag_holds_nothing(lag: int) -> None:
    """Rule 11: a lag of 0, or below, is not looked for."""
    kept = new_log(published=0, end=8)
    assert publishable(kept, CompactionPolicy(min_compaction_lag_ms=lag), 0, lambda _: pytest.fail("looked")) == 8


@pytest.mark.parametrize(
    ("published", "folded_end", "young", "expected"),
    [
        pytest.param(-3, -3, None, 100, id="all is read"),
        pytest.param(-3, -3, 70, 70, id="a fold may end behind the first end"),
        pytest.param(-3, -3, 60, 60, id="at it"),
        pytest.param(-3, -3, 59, -3, id="never below it"),
        pytest.param(-3, 80, 59, 80, id="a fold that was begun goes on"),
        pytest.param(60, 60, 61, 61, id="a later fold ends anywhere"),
    ],
)
def test_the_first_fold_of_a_generation_ends_at_its_first_end_or_beyond(
    published: int, folded_end: int, young: int | None, expected: int
) -> None:
    """Below it a reader would see an output that is neither the earlier generation nor this one."""
    generation = Generation(number=2, start=12, first_end=60)
    log = replace(LOG, start=-3, clean_end=-3, published=published, folded_end=folded_end, generation=generation)
    assert publishable(log, CompactionPolicy(min_compaction_lag_ms=5), 1000, lambda _: young) == expected
