from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from compactor.analyze.preview import Count, FoldPreview, Hold, RangeCounts, boundaries, preview, with_exact_counts
from compactor.clean.log_to_clean import LogToClean
from compactor.model.log import PartitionLog
from compactor.settings import CompactionPolicy, EngineSettings
from tests.support.logs import base, log, run

NOW = 10_000
LAGGING = CompactionPolicy(min_compaction_lag_ms=1_000)
DELETING = CompactionPolicy(cleanup_policy=("compact", "delete"), retention_ms=5_000)


def seen(
    one: PartitionLog,
    policy: CompactionPolicy = LAGGING,
    *,
    young: int | None = None,
    closed: bool = False,
    bootstrap: bool = True,
) -> FoldPreview:
    settings = EngineSettings(connector="c", policy=policy, bootstrap_fold_enable=bootstrap)
    first_young: Callable[[int], int | None] = lambda _: young  # noqa: E731 - a stand-in of one line
    return preview(one, settings, NOW, closed=closed, first_young=first_young)


HEAD = log(run(0, 20, 9), published=5)
UNREAD = replace(HEAD, backlog_end=30)
READ = replace(HEAD, backlog_end=20)


@pytest.mark.parametrize(
    ("one", "told", "end", "hold"),
    [
        (HEAD, {"young": 12}, 12, Hold.LAG),
        (HEAD, {"young": None}, 20, None),
        (HEAD, {"young": 5}, 5, Hold.LAG),
        (log(run(0, 20, 9), published=15), {"young": 15}, 15, Hold.LAG),
        (HEAD, {"policy": CompactionPolicy(), "young": 5}, 20, None),
        (HEAD, {"young": 12, "closed": True}, 5, Hold.CLOSED),
        (UNREAD, {}, 5, Hold.BACKLOG),
        (READ, {"young": 12}, 12, Hold.LAG),
        (UNREAD, {"young": 12, "bootstrap": False}, 12, Hold.LAG),
        (replace(HEAD, folded_end=8), {"young": 5}, 8, Hold.LAG),
    ],
    ids=[
        "up to the first young record",
        "none is young",
        "the first is young",
        "what is published stays",
        "no lag",
        "a closed topic",
        "an unread backlog",
        "a backlog that is read",
        "a backlog that is not waited for",
        "a fold that was begun",
    ],
)
def test_a_fold_ends_where_publishing_may(one: PartitionLog, told: dict[str, Any], end: int, hold: Hold | None) -> None:
    """As if everything due had been published, never below what is; what is held back has its reason."""
    found = seen(one, **told)
    assert (found.end, found.hold, found.log.published) == (end, hold, end)


def test_retention_comes_before_the_fold() -> None:
    """Under `delete` the fold begins where retention lets the log begin; without it, at the old start."""
    old, new = run(0, 10, 9, arrived=1), run(10, 20, 9, arrived=NOW)
    found = seen(log(old, new), DELETING)
    assert (found.start, found.end, found.retention.segments, found.folds) == (10, 20, 1, True)
    assert seen(log(old, new)).start == 0


def test_without_compact_nothing_is_folded() -> None:
    """cleanup.policy=delete removes by retention alone."""
    assert not seen(log(run(0, 5, 9)), CompactionPolicy(cleanup_policy=("delete",))).folds


def test_a_log_is_cut_where_any_outlook_needs_it() -> None:
    """Start, end, the fold's end under each of the settings, and the bounds of runs across published."""
    one = log(run(5, 12, 9), run(12, 20, 9), clean=base(5, 9), published=5)
    assert boundaries(one, [seen(one, young=15), seen(one, young=12)]) == (0, 12, 15, 20)
    assert boundaries(log(), [seen(log())]) == (0,)


def _count(records: int, oldest_ms: int | None = None) -> Count:
    return Count(records=records, bytes=10 * records, oldest_ms=oldest_ms)


def test_a_census_adds_up_neighbours() -> None:
    """Between any two boundaries; nothing where they are equal; the oldest of all."""
    counts = RangeCounts((0, 5, 7, 9), (_count(1, 30), _count(2), _count(4, 20)))
    assert counts.between(0, 9) == _count(7, 20)
    assert counts.between(5, 7) == _count(2)
    assert counts.between(7, 7) == Count()


def test_a_run_across_published_is_counted_in_two() -> None:
    """Its dirt is that of the two parts, each by its own figures: not a byte is split in proportion."""
    one = log(run(5, 20, 100, arrived=50), clean=base(5, 40), published=15)
    counts = RangeCounts((0, 5, 15, 20), (_count(4), _count(3, 7), _count(6, 60)))
    found = LogToClean.of(with_exact_counts(one, counts))
    assert (LogToClean.of(one).straddling_bytes, found.straddling_bytes) == (100, 0)
    assert (found.clean_bytes, found.cleanable_bytes, found.cleanable_records) == (40, 30, 3)
    assert (found.uncleanable_bytes, found.oldest_ms) == (60, 7)


def test_a_part_without_records_is_no_file() -> None:
    """A run of which nothing lies below published has no dirt there."""
    one = log(run(0, 10, 100, arrived=50), published=5)
    found = LogToClean.of(with_exact_counts(one, RangeCounts((0, 5, 10), (Count(), _count(9)))))
    assert (found.cleanable_bytes, found.straddling_bytes, found.uncleanable_bytes, found.oldest_ms) == (0, 0, 90, None)
