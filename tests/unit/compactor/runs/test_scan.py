"""What is read of files: exactly, and in bounds that make most files alike."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compactor.model.log import Run, RunFile
from compactor.model.record import TopicPartition
from compactor.runs import scan
from compactor.runs.scan import FileRange, OffsetRange, between, plan_reads, plan_wide_reads
from tests.support.logs import TP, file, log, run


def entire(first: int, last: int, path: str) -> RunFile:
    """A file that holds nothing but these offsets."""
    return replace(file(first, last, 9, path=path), entire=True)


CUT = replace(file(8, 9, 9, path="cut"), entire=False)
RUNS = (run(0, 4, [entire(1, 2, "a")]), run(4, 8, [entire(2, 7, "over")]), run(8, 12, [CUT]))
PARTS = (run(0, 3, [file(1, 2, 9, path="a")]), run(3, 6, [file(3, 5, 9, path="a")]))


def bounds_of(reads: dict[str, list[FileRange]]) -> dict[str, list[tuple[int, TopicPartition, int, int]]]:
    """What is read of each file: (log, partition, start, end)."""
    return {path: [one.bounds for one in own] for path, own in reads.items()}


@pytest.mark.parametrize(
    ("runs", "exact", "wide"),
    [
        (RUNS, {"a": (1, 4), "over": (4, 8), "cut": (8, 11)}, {"a": (1, 11), "over": (4, 11), "cut": (8, 11)}),
        (PARTS, {"a": (1, 6)}, {"a": (1, 6)}),
    ],
    ids=["neighbours", "one file in two runs"],
)
def test_reads_are_wide_only_where_a_file_holds_nothing_else(
    runs: tuple[Run, ...], exact: dict[str, tuple[int, int]], wide: dict[str, tuple[int, int]]
) -> None:
    """Beyond its run nothing is asked of a file that reaches over it, or that was counted anew within it."""
    part = between(log(*runs), 1, min(11, runs[-1].end))
    assert bounds_of(plan_reads([part])) == {path: [(0, TP, *bounds)] for path, bounds in exact.items()}
    assert bounds_of(plan_wide_reads([part])) == {path: [(0, TP, *bounds)] for path, bounds in wide.items()}


def test_parts_of_a_file_that_meet_are_wanted_once() -> None:
    """A file that was counted in parts is read once; parts with something between them stay two, and so do ranges."""
    low, high, far = (run(lo, hi, [file(lo, hi - 1, 3, path="one")]) for lo, hi in ((4, 7), (7, 10), (12, 14)))
    assert bounds_of(plan_reads([between(log(low, high), 0, 20)])) == {"one": [(0, TP, 4, 10)]}
    assert bounds_of(plan_reads([between(log(low, far), 0, 20)])) == {"one": [(0, TP, 4, 7), (0, TP, 12, 14)]}
    both = [between(log(low, high), 0, 7), between(log(low, high), 7, 10)]
    assert bounds_of(plan_reads(both)) == {"one": [(0, TP, 4, 7), (1, TP, 7, 10)]}


@pytest.mark.parametrize(
    ("holds_no_more", "first", "last", "bounds"),
    [
        (False, 4, 7, (4, 8)),
        (False, 2, 9, (4, 8)),
        (True, 4, 7, (0, 20)),
        (True, 3, 7, (4, 20)),
        (True, 4, 8, (0, 8)),
    ],
)
def test_only_what_a_file_holds_whole_is_wanted_in_wider_bounds(
    holds_no_more: bool, first: int, last: int, bounds: tuple[int, int]
) -> None:
    """On each side: where the file may hold more than is counted of it, a neighbour may hold that as well."""
    held = replace(file(first, last, 9, path="f"), entire=holds_no_more)
    part = OffsetRange(tp=TP, start=0, end=20, runs=())
    assert scan.widened(part, FileRange(tp=TP, file=held, start=4, end=8)) == bounds
