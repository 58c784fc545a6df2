from __future__ import annotations

import pytest
from msgspec.structs import replace

from compactor.clean.tiers import pick_merge, pick_merges
from compactor.model.log import PartitionLog, RunFile
from compactor.model.log_transitions import check_invariants, merge
from compactor.model.record import TopicPartition
from compactor.runs.file_stats import FileStats
from compactor.settings import FoldPolicy
from tests.support.logs import base, file, log, run

FOLD = FoldPolicy(level0_files=3, tier_runs=3, run_max_bytes=100)


def row(*sizes: int, level: int = 0, start: int = 0, published: int | None = None) -> PartitionLog:
    """A log of neighbouring runs of ten offsets each."""
    return log(
        *(run(start + 10 * place, start + 10 * place + 10, size, level=level) for place, size in enumerate(sizes)),
        published=published,
    )


def mixed(*runs: tuple[int, int]) -> PartitionLog:
    """A log of neighbours, (level, bytes) each."""
    return log(*(run(10 * place, 10 * place + 10, size, level=level) for place, (level, size) in enumerate(runs)))


def stats(held: RunFile, tombstones: int = 0) -> FileStats:
    return FileStats(topic="t", partition=0, file=held, tombstones=tombstones)


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        pytest.param(row(1, 1), None, id="too few wait"),
        pytest.param(row(1, 1, 1), (0, 30, 1), id="fold.level0.files wait"),
        pytest.param(row(1, 90, 1, 5), (0, 40, 1), id="all that wait, whatever their sizes"),
        pytest.param(row(1, 1, 1, published=29), None, id="a run across published does not wait"),
        pytest.param(row(1, 1, 1, 1, published=35), (0, 30, 1), id="never a run above published"),
        pytest.param(row(1, 1, 1, published=0), None, id="nothing published"),
        pytest.param(row(1, 101, 1, 1), None, id="a run over fold.run.max.bytes is left and ends a row"),
        pytest.param(row(101, 1, 1, 1), (10, 40, 1), id="neighbours beside it are merged"),
        pytest.param(row(100, 1, 1), (0, 30, 1), id="at fold.run.max.bytes it is not over it"),
        pytest.param(row(5, 5, 5, level=1), (0, 30, 2), id="a tier of similar size"),
        pytest.param(row(5, 5, level=1), None, id="too few for a tier"),
        pytest.param(row(10, 5, 5, level=1), (0, 30, 2), id="as large as the others together"),
        pytest.param(row(11, 5, 5, level=1), None, id="larger than the others together"),
        pytest.param(row(50, 5, 5, 5, level=1), (10, 40, 2), id="the large one is left, similar neighbours merge"),
        pytest.param(row(5, 5, 5, 5, level=2), (0, 30, 3), id="the oldest of a longer row"),
        pytest.param(row(60, 101, 60, 60, level=1), None, id="no tier merge rewrites a run over the limit"),
        pytest.param(mixed((2, 5), (1, 5), (1, 5), (0, 1), (0, 1)), None, id="levels are not mixed"),
        pytest.param(
            mixed((1, 5), (1, 5), (1, 5), (0, 1), (0, 1), (0, 1)), (30, 60, 1), id="the lowest level first"
        ),
    ],
)  # fmt: skip
def test_neighbours_are_merged_into_the_next_level(kept: PartitionLog, expected: tuple[int, int, int] | None) -> None:
    """Level 0 merges once enough runs wait, a tier once enough similar neighbours do; nothing above published."""
    plan = pick_merge(kept, FOLD)
    assert (plan and (plan.start, plan.end, plan.level)) == expected


def test_a_merge_keeps_tombstones_and_stamps_nothing() -> None:
    """The merged run has the tombstones that its files hold, no horizon, and the age of its oldest record."""
    runs = (run(0, 10, 5, arrived=70, oldest=40), run(10, 20, 5, arrived=90), run(20, 30, 5, arrived=80, oldest=60))
    plan = pick_merge(log(*runs), FOLD)
    assert plan is not None
    made = plan.result([stats(file(7, 29, 9), tombstones=4)])
    assert (made.tombstones, made.horizons, made.next_horizon_ms) == (4, 0, None)
    assert (made.level, made.start, made.end, made.bytes, made.records) == (1, 0, 30, 9, 23)
    assert (made.oldest_ms, made.arrived_ms, made.max_timestamp) == (40, 90, 90)


@pytest.mark.parametrize("count", [3, 9, 40])
def test_merging_comes_to_an_end_and_keeps_the_log_sound(count: int) -> None:
    """testSegmentGrouping: merge after merge order is kept, runs become few, and all stays within its bounds."""
    kept = row(*[3] * count, start=10)
    kept = replace(kept, base=base(10, 7), clean_end=10)
    for _ in range(count):
        plan = pick_merge(kept, FOLD)
        if plan is None:
            break
        kept = check_invariants(merge(kept, plan.result([stats(file(plan.start, plan.end - 1, plan.bytes))])))
    assert pick_merge(kept, FOLD) is None
    assert (kept.runs[0].start, kept.runs[-1].end) == (10, 10 + 10 * count)
    assert len(kept.runs) <= 8


def test_a_job_takes_many_logs_up_to_its_budget() -> None:
    """Most runs first, ties by partition, held ones not at all; the first whatever its size."""
    logs = [
        replace(row(*[10] * size), topic="t", partition=number) for number, size in enumerate((3, 5, 3, 4, 2))
    ]  # fmt: skip
    held = {TopicPartition("t", 3)}

    def picked(budget: int) -> list[int]:
        return [plan.tp.partition for plan in pick_merges(logs, FOLD, held, budget)]

    assert picked(110) == [1, 0, 2]
    assert picked(109) == [1, 0]
    assert picked(0) == [1]
    assert pick_merges([], FOLD, held, 9) == ()


@pytest.mark.parametrize(
    ("kept", "end"), [(row(1, 1), 20), (row(5, 5, level=1), 20), (row(1), None), (row(5, level=1), None)]
)
@pytest.mark.parametrize("least", [1, 2])
def test_two_runs_are_the_fewest_that_are_merged(kept: PartitionLog, end: int | None, least: int) -> None:
    """Also where fewer are allowed: one run alone would be rewritten as itself for ever."""
    found = pick_merge(kept, FoldPolicy(level0_files=least, tier_runs=least))
    assert (found.runs[-1].end if found else None) == end
