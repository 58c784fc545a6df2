from __future__ import annotations

import pytest

from compactor.fold.task_split import Share, shares, task_bytes
from compactor.model.log import Run, RunFile
from compactor.model.record import TopicPartition
from compactor.runs.scan import OffsetRange

MIB = 1 << 20


def part(number: int, *sizes: int) -> OffsetRange:
    """A slice whose files hold 100 offsets and `sizes` MiB each."""
    runs = tuple(
        Run(start=n * 100, end=n * 100 + 100, level=0, records=1, bytes=size * MIB, files=(
            RunFile(path="f", first=n * 100, last=n * 100 + 99, records=1, bytes=size * MIB, file_bytes=1, sha256=""),
        ))
        for n, size in enumerate(sizes)
    )  # fmt: skip
    return OffsetRange(tp=TopicPartition("t", number), start=0, end=100 * len(sizes), runs=runs)


@pytest.mark.parametrize(
    ("slices", "expected"),
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
    slices: list[OffsetRange], expected: list[tuple[int, int, int]]
) -> None:
    """With 8 MiB to a task: neighbours are put together, and what is larger is cut at its bytes' share of offsets."""
    assert shares(slices, 8 * MIB, cores=64) == tuple(Share(*one) for one in expected)


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
