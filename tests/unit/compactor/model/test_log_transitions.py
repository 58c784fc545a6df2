from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from compactor.clean.log_to_clean import LogToClean, straddling_runs
from compactor.errors import CatalogError
from compactor.model.actions import AddPartition, AnyAction, Append, Clean, Merge, Publish, Restate, Retain
from compactor.model.log import Gap, Generation, OutputPoint, PartitionLog, Run, lost_by
from compactor.model.log_transitions import (
    append,
    begin_generation,
    check_invariants,
    clean,
    merge,
    plan_fold,
    publish,
    restate,
    retain,
    skip,
)
from compactor.model.state import CatalogState, apply
from tests.support.logs import base, file, log, run

THREE = log(run(10, 20, 5), run(20, 30, 5), run(30, 40, 5), clean=base(10, 9), published=35)


def test_a_merged_run_takes_the_place_of_its_neighbours() -> None:
    """Only the runs of the same offsets go; order and everything else stay."""
    made = run(10, 30, 8, level=1)
    assert merge(THREE, made) == replace(THREE, runs=(made, THREE.runs[2]))


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(run(10, 25, 1, level=1), id="ends inside a run"),
        pytest.param(run(15, 30, 1, level=1), id="begins inside a run"),
        pytest.param(run(0, 30, 1, level=1), id="begins in the base run"),
        pytest.param(run(30, 40, 1, level=1), id="beyond published"),
        pytest.param(run(10, 30, 1, level=0), id="of no higher level"),
        pytest.param(run(50, 60, 1, level=1), id="of no run"),
        pytest.param(replace(run(10, 30, 1, level=1), records=21), id="with more records"),
    ],
)
def test_a_merge_of_a_log_that_has_changed_is_void(made: Run) -> None:
    """A merge that is not of whole runs below published is refused."""
    with pytest.raises(CatalogError):
        merge(THREE, made)


def test_a_run_is_restated_in_exact_pieces() -> None:
    """The file across published is counted on each side, and the ratio is exact from then on."""
    pieces = (run(30, 35, [file(30, 34, 1, path="f")]), run(35, 40, [file(35, 39, 4, path="f")]))
    before = replace(THREE, runs=(*THREE.runs[:2], run(30, 40, [file(30, 39, 5, path="f")])))
    after = restate(before, pieces)
    was, found = LogToClean.of(before), LogToClean.of(after)
    assert (was.cleanable_bytes, was.straddling_bytes) == (10, 5)
    assert (found.cleanable_bytes, found.straddling_bytes) == (11, 0)
    assert (found.uncleanable_bytes, straddling_runs(after)) == (4, ())


def test_a_folded_run_is_never_cut() -> None:
    """Whole it may be counted anew; inside it a key is gone because of a later record, so no end is there."""
    old = replace(run(30, 40, [file(30, 39, 5, path="f")]), folded=True)
    before = replace(THREE, runs=(*THREE.runs[:2], old))
    assert restate(before, [old]) == before
    pieces = [replace(run(*at, [file(at[0], at[1] - 1, 2, path="f")]), folded=True) for at in ((30, 35), (35, 40))]
    with pytest.raises(CatalogError, match="no end is inside"):
        restate(before, pieces)


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([], id="nothing"),
        pytest.param([run(30, 35, [file(30, 34, 1, path="f")])], id="not all of it"),
        pytest.param([run(30, 40, [file(30, 39, 1, path="g")])], id="another file"),
        pytest.param([run(30, 40, ())], id="without its file"),
        pytest.param([run(30, 40, [file(30, 38, 1, path="f")])], id="a record fewer"),
        pytest.param([run(30, 40, [file(30, 39, 1, path="f")], level=1)], id="another level"),
        pytest.param(
            [run(30, 33, [file(30, 32, 1, path="f")]), run(34, 40, [file(33, 39, 1, path="f")])], id="a hole"
        ),
        pytest.param(
            [run(30, 35, [file(30, 35, 1, path="f")]), run(35, 40, [file(36, 39, 1, path="f")])], id="not exact"
        ),
    ],
)  # fmt: skip
def test_restating_loses_nothing(pieces: Sequence[Run]) -> None:
    """What is restated as anything else than the same records of the same files is refused."""
    before = replace(THREE, runs=(*THREE.runs[:2], run(30, 40, [file(30, 39, 5, path="f")])))
    with pytest.raises(CatalogError):
        restate(before, pieces)


@pytest.mark.parametrize(
    ("start", "level", "fits"),
    [
        pytest.param(5, 0, True, id="as it is"),
        pytest.param(6, 0, False, id="a hole between the pieces"),
        pytest.param(5, 1, False, id="a higher level: that is a merge"),
    ],
)
def test_pieces_join_and_stay_at_level_0(start: int, level: int, fits: bool) -> None:
    """Pieces cover the run without a hole, also where no record lies in the hole, and are not taken for merged."""
    sparse = [file(0, 4, 5, path="f"), file(6, 9, 4, path="f")]
    before = log(run(0, 10, sparse))
    pieces = (run(0, 5, sparse[:1], level=level), run(start, 10, sparse[1:], level=level))
    if fits:
        assert restate(before, pieces).runs == pieces
    else:
        with pytest.raises(CatalogError, match="would be restated as another"):
            restate(before, pieces)


@pytest.mark.parametrize(
    ("start", "expected", "ends"),
    [
        pytest.param(0, (0, 10), (0, 10), id="testCleanableOffsetsNeedsCheckpointReset: valid, nothing changes"),
        pytest.param(5, (5, 10), (5, 10), id="inside the base run"),
        pytest.param(20, (20, 20), (20, 20), id="testCheckpointUpdatedForInvalidOffsetNoCleaning: clean_end follows"),
        pytest.param(35, (35, 35), (35, 35), id="testCheckpointUpdatedForInvalidOffsetNotSelected: up to published"),
    ],
)
def test_the_start_moves_and_clean_end_with_it(start: int, expected: tuple[int, int], ends: tuple[int, int]) -> None:
    """Rule 3: a clean end below the start is moved up in the same commit, whether or not the log is folded."""
    after = retain(THREE, start)
    assert after.base is not None
    assert (after.start, after.clean_end) == expected
    assert (after.base.start, after.base.end) == ends
    assert all(one.start >= start for one in after.runs)
    assert retain(after, 0) == after


def test_retention_never_passes_published() -> None:
    """A start beyond published is refused: what was never sent is not dropped."""
    with pytest.raises(CatalogError):
        retain(THREE, 36)


def test_retention_leaves_where_a_snapshot_resumes() -> None:
    """A reader of a snapshot taken after it resumes at the old point or earlier: never later."""
    before = replace(THREE, base_output=OutputPoint(10, 4))
    assert retain(before, 20).base_output == OutputPoint(10, 4)


def test_a_base_run_counts_only_the_files_it_keeps() -> None:
    """Files below the new start leave the bytes of the base run, so the ratio stays exact."""
    two = replace(base(10, 0), files=(file(0, 4, 6), file(5, 9, 3)), records=10, bytes=9)
    after = retain(replace(THREE, base=two), 5)
    assert after.base is not None
    assert (after.base.records, after.base.bytes, len(after.base.files)) == (5, 3, 1)


@pytest.mark.parametrize(
    "broken",
    [
        replace(THREE, clean_end=36),
        replace(THREE, published=41),
        replace(THREE, start=11),
        replace(THREE, runs=(run(10, 21, 1), run(20, 30, 1))),
        replace(THREE, runs=(run(9, 20, 1),)),
        replace(THREE, runs=(run(30, 41, 1),)),
        replace(THREE, runs=(run(30, 36, 1, level=1),)),
        replace(THREE, runs=(run(10, 20, [file(20, 21, 1)]),)),
        replace(THREE, base=base(11, 1)),
        replace(THREE, base=replace(base(10, 1), level=1)),
        replace(THREE, base_output=OutputPoint(11, 1)),
    ],
)
def test_what_must_always_be_is_checked(broken: PartitionLog) -> None:
    """The order start ≤ clean_end ≤ published ≤ folded_end ≤ end holds, and every run is in its place."""
    assert check_invariants(THREE) is THREE
    with pytest.raises(CatalogError, match="t-0: "):
        check_invariants(broken)


@pytest.mark.parametrize(
    ("before", "at", "expected"), [(None, None, None), (None, 5, 5), (5, None, 5), (5, 9, 9), (9, 5, 9)]
)
def test_the_time_of_the_last_full_fold_only_grows(before: int | None, at: int | None, expected: int | None) -> None:
    """testUpdateCheckpointsShouldAddOffsetToPartition: clean_end and time are stored; a clock set back moves none."""
    after = clean(replace(THREE, last_full_fold_ms=before), 30, base(30, 9), at)
    assert (after.clean_end, after.last_full_fold_ms) == (30, expected)


@pytest.mark.parametrize("end", [pytest.param(9, id="below the last"), pytest.param(25, id="inside a merged run")])
def test_a_full_fold_ends_where_a_state_ever_was(end: int) -> None:
    """A full fold that goes back, or ends inside a merge, is refused: no such offset can be an end."""
    merged = merge(THREE, run(10, 30, 8, level=1))
    with pytest.raises(CatalogError):
        clean(merged, end, base(end, 9))


def test_the_actions_do_what_they_say() -> None:
    """Merge, Restate, Retain and Clean change the log of their partition through the one place that may."""
    actions: list[AnyAction] = [
        AddPartition(topic="t", partition=0, bucket=0, start=0),
        *(Append(topic="t", partition=0, start=at, end=at + 10, run=run(at, at + 10, 5)) for at in (0, 10, 20)),
        Publish(topic="t", partition=0, end=30),
        Restate(topic="t", partition=0, runs=(run(20, 30, [file(20, 29, 5)]),)),
        Merge(topic="t", partition=0, run=run(0, 20, 8, level=1)),
        Clean(topic="t", partition=0, end=30, base=base(30, 9), at_ms=77),
        Retain(topic="t", partition=0, start=30),
    ]
    (after,) = apply(CatalogState(), actions).logs
    assert (after.start, after.clean_end, after.runs, after.last_full_fold_ms) == (30, 30, (), 77)
    (merged,) = apply(CatalogState(), actions[:-2]).logs
    assert [(one.level, one.start, one.end) for one in merged.runs] == [(1, 0, 20), (0, 20, 30)]


def test_a_gap_drops_what_was_not_published() -> None:
    """Offsets, runs and the fold that was begun go; what was published stays, and the offsets count as lost."""
    after = skip(replace(THREE, folded_end=40, backlog_end=70), 60)
    assert (after.published, after.folded_end, after.end, after.clean_end) == (60, 60, 60, 10)
    assert after.gaps == (Gap(35, 60),)
    assert [(one.start, one.end) for one in after.runs] == [(10, 20), (20, 30), (30, 35)]
    assert after.backlog_end == 70
    assert skip(replace(THREE, backlog_end=50), 50).backlog_end is None
    with pytest.raises(CatalogError, match="below published 35"):
        skip(THREE, 34)


def test_a_cut_run_may_have_nothing_left() -> None:
    """Its file has records on both sides only: counted anew it is empty, and names no file."""
    cut = run(35, 38, [file(30, 39, 5, path="f")])
    before = replace(THREE, runs=(*THREE.runs[:2], run(30, 35, [file(30, 34, 1)]), cut), end=38, published=38)
    empty_run = run(35, 38, ())
    assert restate(replace(before, folded_end=38), [empty_run]).runs[-1] == empty_run


GENERATION = Generation(number=2, start=12, first_end=40, output_offset=7)
LEAD = replace(run(-3, 12, [file(-3, -1, 3)]), folded=True)


def test_a_generation_keeps_nothing_but_the_bucket() -> None:
    """Offsets begin at the first tombstone, or where the source is read."""
    before = replace(THREE, bucket=3, gaps=(Gap(1, 2),), begun=True, last_full_fold_ms=9)
    after = begin_generation(before, GENERATION, LEAD)
    assert (after.start, after.clean_end, after.published, after.folded_end, after.end) == (-3, -3, -3, -3, 12)
    assert (after.bucket, after.runs, after.output, after.gaps) == (3, (LEAD,), OutputPoint(-3, 7), ())
    assert (after.base, after.begun, after.last_full_fold_ms) == (None, False, None)
    assert begin_generation(before, GENERATION, None).start == 12
    assert begin_generation(after, replace(GENERATION, number=3), None).generation == replace(GENERATION, number=3)
    assert begin_generation(before, replace(GENERATION, number=9), None).generation == replace(GENERATION, number=9)


@pytest.mark.parametrize(
    ("generation", "lead"),
    [
        pytest.param(replace(GENERATION, number=1), None, id="the first again"),
        pytest.param(GENERATION, replace(LEAD, start=0), id="tombstones among the source's offsets"),
        pytest.param(GENERATION, replace(LEAD, end=11), id="a hole behind the tombstones"),
    ],
)
def test_a_generation_that_does_not_follow_is_refused(generation: Generation, lead: Run | None) -> None:
    """Nothing is begun twice, and no offset is two records'."""
    with pytest.raises(CatalogError):
        begin_generation(THREE, generation, lead)


def test_what_a_generation_gave_up_is_lost_until_something_of_it_is_published() -> None:
    """Then it was counted; a gap of the first generation is counted by whoever meets it."""
    begun = begin_generation(THREE, replace(GENERATION, first_end=12), LEAD, Gap(5, 12))
    assert begun.gaps == (Gap(5, 12),)
    assert lost_by(begun) == 7
    assert lost_by(append(begun, 12, 13, None, None)) == 7
    assert lost_by(publish(plan_fold(begun, 12), 12, None)) == 0
    without = begin_generation(THREE, replace(GENERATION, first_end=12), None, Gap(5, 12))
    assert lost_by(without) == 7
    sent = publish(plan_fold(append(without, 12, 13, None, None), 13), 13, None)
    assert lost_by(sent) == lost_by(retain(sent, 13)) == 0
    assert lost_by(skip(THREE, THREE.end + 3)) == 0
