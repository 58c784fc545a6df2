"""What one process folds in its memory."""

from __future__ import annotations

import pytest

from compactor.fold.memory_budget import ANY, NONE, MemoryBudget, local
from compactor.model.record import TopicPartition
from compactor.runs.scan import OffsetRange
from tests.support.logs import file, run

BUDGET = MemoryBudget(records=10, bytes=2_000, files=2)


def ranges(records: int, files: int = 1) -> list[OffsetRange]:
    """So many records of topic t, each of some bytes, in so many files."""
    each = records // files
    made = [file(at * each, (at + 1) * each - 1, each, path=f"f{at}") for at in range(files)]
    return [OffsetRange(tp=TopicPartition("t", 0), start=0, end=records, runs=(run(0, records, made),))]


@pytest.mark.parametrize(
    ("budget", "records", "files", "fits"),
    [
        (BUDGET, 10, 1, True),
        (BUDGET, 11, 1, False),
        (BUDGET, 9, 3, False),
        (BUDGET.shared(2), 5, 1, True),
        (BUDGET.shared(2), 6, 1, False),
        (MemoryBudget(records=10, bytes=100), 10, 1, False),
        (local(10), 10, 1, True),
        (local(-1), 0, 1, False),
        (NONE, 0, 1, False),
        (ANY.shared(3), 10**6, 1, True),
    ],
)
def test_so_much_fits_a_budget(budget: MemoryBudget, records: int, files: int, fits: bool) -> None:
    """Records, files, and bytes, in which what a row takes by itself counts too."""
    assert budget.fits(ranges(records, files)) is fits


def test_ranges_of_one_file_are_not_limited() -> None:
    """A round of ten thousand partitions lies in a file or two: Spark would take ten times as long for it."""
    shared = run(0, 1, [file(0, 0, 10, path="f")])
    assert BUDGET.fits([OffsetRange(tp=TopicPartition("t", at), start=0, end=1, runs=(shared,)) for at in range(9)])


def test_every_task_has_its_share() -> None:
    """Of records and bytes, not of files: those are read one after the other."""
    assert BUDGET.shared(4) == MemoryBudget(records=2, bytes=500, files=2)
