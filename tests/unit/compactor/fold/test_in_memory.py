"""Several tasks at once in one process: what counts where some of them fail."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from compactor.errors import FencedError, KeyfoldError, PublishInterruptedError
from compactor.fold.in_memory import InMemory
from compactor.fold.latest_per_key import FoldJob
from compactor.fold.memory_budget import FoldBudget
from compactor.publish.executors import LatestAndRejected
from tests.support.memory.storage import MemoryStorage

ANSWERS = pa.schema([pa.field("number", pa.int64())])


class Working:
    """Fails in the tasks that it is told of; `done` are the others."""

    def __init__(self, failures: dict[int, KeyfoldError]) -> None:
        self.done: list[int] = []
        self._failures = failures

    def __call__(self, number: int, records: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
        assert list(records) == []
        if number in self._failures:
            raise self._failures[number]
        self.done.append(number)
        return [pa.RecordBatch.from_pylist([{"number": number}], schema=ANSWERS)]

    def run(self) -> list[int]:
        job = FoldJob(
            ranges=[],
            keep=LatestAndRejected(),
            work=lambda: self,
            work_here=lambda: self,
            answers=ANSWERS,
            budget=FoldBudget(),
            tasks=dict.fromkeys(range(3), ()),
        )
        found = InMemory(MemoryStorage()).run(job)
        assert found.left is None
        return [row["number"] for row in found.rows]


def test_every_task_answers() -> None:
    """Also one without a range and a record; the answers come by number."""
    assert Working({}).run() == [0, 1, 2]


def test_a_newer_owner_counts_before_everything_else() -> None:
    """A fenced worker must end, and not be started again for what another task met; the others did their part."""
    working = Working({0: PublishInterruptedError("shut out", "again"), 1: FencedError("a newer owner", "stop")})
    with pytest.raises(FencedError):
        working.run()
    assert working.done == [2]


def test_otherwise_the_first_task_counts() -> None:
    """One error is raised, the same each time."""
    failing: dict[int, KeyfoldError] = {one: PublishInterruptedError(f"task {one}", "again") for one in (1, 2)}
    with pytest.raises(PublishInterruptedError, match="task 1"):
        Working(failing).run()
