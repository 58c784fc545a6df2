from __future__ import annotations

import pytest

from compactor.fold.bunches import Bunch, bunches
from compactor.model.log import Run, RunFile
from compactor.model.record import TopicPartition
from compactor.runs.scan import OffsetRange

MIB = 1 << 20
MANY = 10**6


def part(number: int, *files: tuple[str, int], records: int = 1) -> OffsetRange:
    """A slice of 100 offsets in each of `files`: (path, MiB of this log's records). Every file is of 10 MiB."""
    runs = tuple(
        Run(start=n * 100, end=n * 100 + 100, level=0, records=records, bytes=size * MIB, files=(
            RunFile(path=path, first=n * 100, last=n * 100 + 99, records=records, bytes=size * MIB,
                    file_bytes=10 * MIB, sha256=""),
        ))
        for n, (path, size) in enumerate(files)
    )  # fmt: skip
    return OffsetRange(tp=TopicPartition("t", number), start=0, end=100 * len(files), runs=runs)


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([part(0)], [((0,), ())], id="a log without a file"),
        pytest.param([part(0, ("a", 1)), part(1, ("a", 1))], [((0, 1), ("a",))], id="small logs share a task"),
        pytest.param([part(0, ("a", 9)), part(1, ("a", 9))], [((0,), ("a",)), ((1,), ("a",))], id="large ones do not"),
        pytest.param([part(0, ("b", 9), ("a", 9))], [((0,), ("b", "a"))], id="a log is never cut; files by offset"),
        pytest.param(
            [part(0, ("c", 1), ("b", 1)), part(1, ("b", 1), ("a", 1))],
            [((0, 1), ("c", "b", "a"))],
            id="one order for all logs",
        ),
        pytest.param(
            [part(0, ("a", 1), ("b", 1)), part(1, ("b", 1), ("a", 1))],
            [((0,), ("a", "b")), ((1,), ("b", "a"))],
            id="where there is one; else each for itself",
        ),
        pytest.param([part(0, ("a", 1), ("b", 1), ("a", 1))], [], id="a file on both sides of another has none"),
        pytest.param(
            [part(0, ("a", 1)), part(1, ("b", 1), records=MANY + 1), part(2, ("c", 1))],
            [((0,), ("a",)), ((1,), ("b",)), ((2,), ("c",))],
            id="a log of any number of records is somebody's work",
        ),
        pytest.param([part(0, ("a", 10_000))], [((0,), ("a",))], id="or of bytes"),
        pytest.param([part(n, ("a", 9)) for n in range(5)], [((n,), ("a",)) for n in range(5)], id="in one file"),
    ],
)
def test_which_logs_a_task_rewrites(
    slices: list[OffsetRange], expected: list[tuple[tuple[int, ...], tuple[str, ...]]]
) -> None:
    """With 8 MiB to a task: whole logs, and every file before those with later offsets of the same log."""
    found = bunches(slices, 8 * MIB, cores=64, most_records=MANY)
    assert found == tuple(Bunch(*one) for one in expected)


def test_a_bunch_holds_no_more_records_than_it_may() -> None:
    """However few bytes they have: more records may have more keys than fit into memory."""
    slices = [part(n, ("a", 1), records=4) for n in range(3)]
    found = bunches(slices, 8 * MIB, cores=64, most_records=8)
    assert [one.logs for one in found] == [(0, 1), (2,)]
