"""One thread at a time has the turn, a stop ends the wait for it, and long work leaves others a task of Spark's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from compactor.spark import tasks
from compactor.turns import READERS, bound, most_tasks, turn
from tests.support.kafka import wait_until
from tests.support.local_spark import LocalSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 30.0


def test_one_thread_at_a_time_has_the_turn() -> None:
    """The next one has it when the first one's block ends, also by an error."""
    lock, has_it, goes_on = threading.Lock(), threading.Event(), threading.Event()

    def take() -> bool:
        with turn(lock, lambda: False) as mine:
            has_it.set()
            assert goes_on.wait(TIMEOUT_S)
            return mine

    def fail() -> None:
        with turn(lock, lambda: False) as mine:
            assert mine
            waiting.append(others.submit(take))
            assert not has_it.wait(0.3)
            raise RuntimeError("the work fails")

    waiting: list[object] = []
    with ThreadPoolExecutor(1) as others:
        with pytest.raises(RuntimeError):
            fail()
        wait_until(has_it.is_set, "the other has its turn", TIMEOUT_S)
        assert lock.locked()
        goes_on.set()
    assert not lock.locked()


def test_a_stop_ends_the_wait_and_leaves_the_turn_where_it_is() -> None:
    """The block then knows that it has no turn, and gives none back."""
    lock = threading.Lock()
    with lock:
        with turn(lock, lambda: True) as mine:
            assert not mine
        assert lock.locked()


def test_long_work_leaves_one_of_several_tasks_to_who_reads() -> None:
    """As long as any connector does: the last to end gives the task back."""
    counts = (1, 2, 4)
    with READERS.reading():
        with READERS.reading():
            assert [most_tasks(count) for count in counts] == [1, 1, 3]
        assert [most_tasks(count) for count in counts] == [1, 1, 3]
    assert [most_tasks(count) for count in counts] == [1, 2, 4]


def test_work_that_may_have_all_tasks_has_one_for_each_of_its_pieces() -> None:
    """Only fewer are a bound: else a piece that takes long would hold up those behind it in its task."""
    assert [bound(most, 4) for most in (1, 3, 4)] == [1, 3, None]


@pytest.mark.parametrize(("most", "used"), [(None, 5), (2, 2), (9, 5)])
def test_so_many_tasks_run_all_numbers(most: int | None, used: int) -> None:
    """A task runs several, one after the other."""
    schema, spark = pa.schema([("number", pa.int64())]), LocalSpark()

    def task(number: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"number": [number]}, schema)

    rows = tasks.run(cast("SparkSession", spark), 5, task, schema, most)
    assert sorted(row["number"] for row in rows) == [0, 1, 2, 3, 4]
    assert spark.tasks == [used]
