from __future__ import annotations

import pytest

from compactor.fold.task_split import RangeSplit, TaskSplit, split_by_log, split_by_offset, task_bytes
from compactor.model.log import Run, RunFile
from compactor.model.record import TopicPartition
from compactor.runs.scan import OffsetRange

MIB = 1 << 20
MANY = 10**6


def part(number: int, *sizes: int) -> OffsetRange:
    """An offset range whose files hold 100 offsets and `sizes` MiB each."""
    runs = tuple(
        Run(start=n * 100, end=n * 100 + 100, level=0, records=1, bytes=size * MIB, files=(
            RunFile(path="f", first=n * 100, last=n * 100 + 99, records=1, bytes=size * MIB, file_bytes=1, sha256=""),
        ))
        for n, size in enumerate(sizes)
    )  # fmt: skip
    return OffsetRange(tp=TopicPartition("t", number), start=0, end=100 * len(sizes), runs=runs)


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], []),
        ([part(0)], [(0, 0, 0)]),
        ([part(0, 1), part(1, 1), part(2, 1)], [(0, 0, 0), (1, 0, 0), (2, 0, 0)]),
        ([part(0, 8), part(1, 8), part(2, 1)], [(0, 0, 0), (1, 0, 1), (2, 0, 2)]),
        ([part(0, 32)], [(0, 0, 0), (0, 25, 1), (0, 50, 2), (0, 75, 3)]),
        ([part(0, 4), part(1, 4, 8, 8)], [(0, 0, 0), (1, 0, 0), (1, 100, 1), (1, 200, 2)]),
    ],
)
def test_small_logs_share_a_task_and_large_ones_are_cut(
    ranges: list[OffsetRange], expected: list[tuple[int, int, int]]
) -> None:
    """With 8 MiB to a task: neighbours are put together, and what is larger is cut at its bytes' share of offsets."""
    assert split_by_offset(ranges, 8 * MIB, cores=64) == tuple(RangeSplit(*one) for one in expected)


@pytest.mark.parametrize(
    ("total", "target", "cores", "expected"),
    [
        (0, 128, 2, 128),
        (1 << 40, 128 * MIB, 2, 1 << 37),
        (100 * MIB, 128 * MIB, 2, 50 * MIB),
        (MIB, 128 * MIB, 2, 8 * MIB),
    ],
)
def test_a_task_is_no_smaller_than_worth_it_and_no_more_than_four_a_core(
    total: int, target: int, cores: int, expected: int
) -> None:
    """All cores get work, none of it tiny, and a huge fold does not make thousands of tasks."""
    assert task_bytes(total, target, cores) == expected


def held(number: int, *files: tuple[str, int], records: int = 1) -> OffsetRange:
    """An offset range of 100 offsets in each of `files`: (path, MiB of this log's records). Every file is of 10 MiB."""
    runs = tuple(
        Run(start=n * 100, end=n * 100 + 100, level=0, records=records, bytes=size * MIB, files=(
            RunFile(path=path, first=n * 100, last=n * 100 + 99, records=records, bytes=size * MIB,
                    file_bytes=10 * MIB, sha256=""),
        ))
        for n, (path, size) in enumerate(files)
    )  # fmt: skip
    return OffsetRange(tp=TopicPartition("t", number), start=0, end=100 * len(files), runs=runs)


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([held(0)], [((0,), ())], id="a log without a file"),
        pytest.param([held(0, ("a", 1)), held(1, ("a", 1))], [((0, 1), ("a",))], id="small logs share a task"),
        pytest.param([held(0, ("a", 9)), held(1, ("a", 9))], [((0,), ("a",)), ((1,), ("a",))], id="large ones do not"),
        pytest.param([held(0, ("b", 9), ("a", 9))], [((0,), ("b", "a"))], id="a log is never cut; files by offset"),
        pytest.param(
            [held(0, ("c", 1), ("b", 1)), held(1, ("b", 1), ("a", 1))],
            [((0, 1), ("c", "b", "a"))],
            id="one order for all logs",
        ),
        pytest.param(
            [held(0, ("a", 1), ("b", 1)), held(1, ("b", 1), ("a", 1))],
            [((0,), ("a", "b")), ((1,), ("b", "a"))],
            id="where there is one; else each for itself",
        ),
        pytest.param([held(0, ("a", 1), ("b", 1), ("a", 1))], [], id="a file on both sides of another has none"),
        pytest.param(
            [held(0, ("a", 1)), held(1, ("b", 1), records=MANY + 1), held(2, ("c", 1))],
            [((0,), ("a",)), ((1,), ("b",)), ((2,), ("c",))],
            id="a log of any number of records is somebody's work",
        ),
        pytest.param([held(0, ("a", 10_000))], [((0,), ("a",))], id="or of bytes"),
        pytest.param([held(n, ("a", 9)) for n in range(5)], [((n,), ("a",)) for n in range(5)], id="in one file"),
    ],
)
def test_which_logs_a_task_rewrites(
    ranges: list[OffsetRange], expected: list[tuple[tuple[int, ...], tuple[str, ...]]]
) -> None:
    """With 8 MiB to a task: whole logs, and every file before those with later offsets of the same log."""
    found = split_by_log(ranges, 8 * MIB, cores=64, most_records=MANY)
    assert found == tuple(TaskSplit(*one) for one in expected)


def test_a_task_holds_no_more_records_than_it_may() -> None:
    """However few bytes they have: more records may have more keys than fit into memory."""
    ranges = [held(n, ("a", 1), records=4) for n in range(3)]
    found = split_by_log(ranges, 8 * MIB, cores=64, most_records=8)
    assert [one.logs for one in found] == [(0, 1), (2,)]
