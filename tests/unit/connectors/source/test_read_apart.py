"""A large read that makes no progress gives its turn back; a small one of its connector finds out why."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from compactor.errors import StorageError
from compactor.storage.local import LocalStorage
from connectors.errors import UnreachableError
from connectors.source.assignment import EarlyEnd
from connectors.source.plan import SourceRange
from connectors.source.portion import Offer
from connectors.source.read_route import APART_IN_DRIVER_MAX, Route
from connectors.source.read_task import ONE_LARGE_JOB, ApartParts, read_apart
from connectors.source.reader import read
from tests.support.engine import intake
from tests.support.source_options import source_options
from tests.unit.connectors.source.test_reader import Fed, Sessions

LARGE = 10 * APART_IN_DRIVER_MAX
SPARK = cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=3)))
TURN = EarlyEnd(idle_s=0.2)


def in_this_process(_: Any, count: int, task: Callable[[int], Iterator[pa.RecordBatch]], __: Any) -> list[Any]:
    """Stands for Spark's tasks."""
    return [row for number in range(count) for batch in task(number) for row in batch.to_pylist()]


def no_job(*_: Any) -> list[Any]:
    """Stands for Spark if no job may be begun."""
    raise AssertionError("a job was begun")


@pytest.fixture
def fed() -> Sessions:
    """Brokers that bring six records of t-0, and then nothing."""
    return Sessions(partial(Fed, last=6), {"t": (LARGE,)})


def parts(fed: Sessions, run: Callable[..., list[Any]] = in_this_process) -> ApartParts:
    """Reads with consumers of these brokers, in jobs that are run by `run`."""
    return ApartParts(partial(read, parts=fed.parts), run)


def offer(folder: Path, route: Route = Route.LARGE_JOB, timeout: float = 60.0, look: float = 1.0) -> Offer:
    options = source_options(
        topics=["t"], limits={"tasks_max": 2}, intake=intake(LocalStorage(str(folder))), timeout=timeout, look=look
    )
    return Offer(options, (SourceRange("t", "id", 0, 0, LARGE),), {}, route)


def test_a_large_read_that_stalls_ends_with_what_it_has(fed: Sessions, tmp_path: Path) -> None:
    """Long before brokers count as unreachable; the piece of the second task does not continue the first's."""
    began = time.monotonic()
    found = read_apart(SPARK, offer(tmp_path), lambda: False, TURN, parts(fed))
    assert time.monotonic() - began < 20
    assert [(read.lo, read.hi, read.records) for read in found.ranges] == [(0, 6, 6)]
    assert sum(part.file.records for part in found.parts) == 6
    assert not ONE_LARGE_JOB.locked()
    assert fed.cluster.requests > 0


def test_brokers_that_do_not_answer_leave_a_large_read_undone(fed: Sessions, tmp_path: Path) -> None:
    """Nothing of it is stated, as nothing shows that the topic is the same; it is no failure of the connector."""
    fed.cluster.away = True
    began = time.monotonic()
    found = read_apart(SPARK, offer(tmp_path, look=60.0), lambda: False, TURN, parts(fed))
    assert time.monotonic() - began < 20
    assert (found.ranges, found.parts) == ((), ())
    assert not ONE_LARGE_JOB.locked()


def test_a_small_read_finds_out_why_without_a_turn(fed: Sessions, tmp_path: Path) -> None:
    """It waits for its whole time, and then raises; however large what is left is, no other connector waits for it."""
    fed.cluster.away = True
    with ONE_LARGE_JOB, pytest.raises(UnreachableError, match="no progress on t-0 at offset 6"):
        read_apart(SPARK, offer(tmp_path, Route.DRIVER, timeout=1.0), lambda: False, TURN, parts(fed, no_job))


def test_another_error_of_a_large_read_is_raised(fed: Sessions, tmp_path: Path) -> None:
    """A full store is no reason to read on in small."""

    def fails(*_: Any) -> list[Any]:
        raise StorageError("Full.")

    with pytest.raises(StorageError, match="Full"):
        read_apart(SPARK, offer(tmp_path), lambda: False, TURN, parts(fed, fails))
    assert not ONE_LARGE_JOB.locked()
    assert fed.cluster.requests == 0


def test_what_is_read_from_is_closed_if_nothing_can_be_written(tmp_path: Path) -> None:
    """An error that is kept keeps its frames: they would hold the consumer, its threads and files for as long."""
    closed: list[str] = []

    def reading(*_: Any) -> Generator[pa.RecordBatch, None, None]:
        try:
            yield pa.RecordBatch.from_pylist([{"no": "column that is written"}])
        finally:
            closed.append("closed")

    with pytest.raises(KeyError) as kept:
        read_apart(SPARK, offer(tmp_path, Route.DRIVER), lambda: False, TURN, ApartParts(reading, no_job))
    assert (closed, bool(kept.tb)) == (["closed"], True)
