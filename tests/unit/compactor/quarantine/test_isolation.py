"""Whom a failed job concerns: which logs are looked at, which are set aside, and what is nobody's fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from compactor.catalog.catalog import Catalog
from compactor.errors import (
    DamagedError,
    DamagedFileError,
    FoldFailedError,
    MissingFileError,
    PublishInterruptedError,
    StoppedError,
    StorageError,
)
from compactor.model.actions import AddPartition, AddTopic, Append
from compactor.model.log import PartitionLog
from compactor.quarantine import verify as inspection
from compactor.quarantine.isolation import PATIENCE, Isolation, may_be_a_file
from compactor.runs import checksums as footers
from tests.support.logs import run
from tests.support.memory.storage import MemoryStorage

CANCELLED = "Py4JJavaError: … SparkException: [SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group x."
DIED = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
PAGE = "org.apache.parquet.io.ParquetDecodingException: could not verify dictionary page integrity"


class Py4JNetworkError(Exception):
    """As py4j raises where the JVM is gone; it is told by its name."""


def jvm_gone() -> Exception:
    """An error of Spark's whose cause is that nobody answers."""
    error = RuntimeError("An error occurred while calling o42.collectToPython")
    error.__cause__ = Py4JNetworkError("Error while sending or receiving")
    return error


@pytest.fixture
def isolation() -> Isolation:
    """Of three partitions that have nothing yet."""
    storage = MemoryStorage()
    catalog = Catalog.open(storage, "c")
    catalog.take_over("test", 0)
    topic = AddTopic(topic="t", topic_id="T", output="o", output_id="O")
    adds = [AddPartition(topic="t", partition=one, bucket=0, start=0) for one in range(3)]
    catalog.commit(lambda _: [topic, *adds], 0)
    return Isolation(storage, catalog)


def logs(isolation: Isolation, *partitions: int) -> list[PartitionLog]:
    return [log for log in isolation.catalog.state.logs if log.partition in (partitions or range(3))]


def held(isolation: Isolation) -> list[int]:
    return [log.partition for log in logs(isolation) if log.quarantine]


class Job:
    """Fails wherever one of `bad` is among the logs."""

    def __init__(self, *bad: int, error: Exception | None = None) -> None:
        self.bad = bad
        self.error = error or RuntimeError("No luck.\nat a place")

    def __call__(self, logs: Sequence[PartitionLog]) -> int:
        if any(log.partition in self.bad for log in logs):
            raise self.error
        return len(logs)


@pytest.mark.parametrize(
    ("error", "looked"),
    [
        (StorageError("The store did not answer."), True),
        (MissingFileError("Gone."), True),
        (DamagedFileError("Damaged."), True),
        (RuntimeError(PAGE), True),
        (RuntimeError(CANCELLED), False),
        (RuntimeError("Job 7 cancelled because SparkContext was shut down"), False),
        (RuntimeError("java.lang.InterruptedException"), False),
        (RuntimeError(DIED), False),
        (RuntimeError("java.io.IOException: No space left on device"), False),
        (ConnectionRefusedError(111, "Connection refused"), False),
        (jvm_gone(), False),
        (PublishInterruptedError("Fenced."), False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_files_are_read_only_for_what_a_file_can_cause(error: Exception, looked: bool) -> None:
    """A job that was cancelled, or whose process died, says nothing about files: nobody reads them all for that."""
    assert may_be_a_file(error) is looked


def test_nothing_is_looked_at_once_a_stop_was_asked_for(isolation: Isolation) -> None:
    """What fails then is the stop's doing, whatever it says."""
    assert isolation.blames(RuntimeError(PAGE))
    isolation.stopping.set()
    assert not isolation.blames(RuntimeError(PAGE))


def test_a_stop_ends_the_reading_of_files_between_two(isolation: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not go on for as long as there are files; what was not read is neither set aside nor released."""
    read: list[str] = []

    def counted(_: object, path: object) -> None:
        read.append(str(path))
        isolation.stopping.set()

    monkeypatch.setattr(footers, "verify_footer", counted)
    monkeypatch.setattr(footers, "verify_file", lambda *_: True)
    runs = [Append(topic="t", partition=one, start=0, end=2, run=run(0, 2, 10)) for one in range(3)]
    isolation.catalog.commit(lambda _: runs, 0)
    with pytest.raises(StoppedError):
        isolation.set_aside(logs(isolation), inspection.unpublished, 0)
    assert len(read) == 1
    assert held(isolation) == []


def test_one_that_fails_alone_is_set_aside_after_some_times(isolation: Isolation) -> None:
    """The others are done meanwhile, each by itself."""
    for _ in range(PATIENCE):
        assert isolation.run(logs(isolation), Job(1), 0) == (1, 1)
    assert held(isolation) == [1]


def test_where_all_fail_alone_it_is_not_the_logs(isolation: Isolation) -> None:
    """No room for Spark to work in fails every fold: the connector says so, and sets nothing aside."""
    for _ in range(PATIENCE + 1):
        with pytest.raises(FoldFailedError, match=r"3 partitions failed.*No luck\. See whether Spark has room"):
            isolation.run(logs(isolation), Job(0, 1, 2), 0)
    assert held(isolation) == []


def test_logs_that_failed_beside_others_go_on_being_counted(isolation: Isolation) -> None:
    """Two that failed while a third was folded are to blame, also when nothing but the two is due."""
    assert isolation.run(logs(isolation), Job(0, 1), 0) == (1,)
    for _ in range(PATIENCE - 1):
        assert isolation.run(logs(isolation, 0, 1), Job(0, 1), 0) == ()
    assert held(isolation) == [0, 1]


def test_a_job_that_was_cancelled_is_not_tried_again_log_by_log(isolation: Isolation) -> None:
    """Somebody broke it off: it raises what it failed with."""
    with pytest.raises(RuntimeError, match="SPARK_JOB_CANCELLED"):
        isolation.run(logs(isolation), Job(0, error=RuntimeError(CANCELLED)), 0)
    assert held(isolation) == []


def test_a_damaged_catalog_is_no_logs_fault(isolation: Isolation) -> None:
    """It is raised as it is, with what can be done about it."""
    error = DamagedError("catalog/3.json is damaged.")
    with pytest.raises(DamagedError):
        isolation.run(logs(isolation), Job(0, 1, 2, error=error), 0)


def test_a_worker_that_dies_of_one_log_is_no_reason_to_read_files(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs are tried alone, without a look at their files."""
    monkeypatch.setattr(inspection, "damage", None)
    assert isolation.run(logs(isolation), Job(2, error=RuntimeError(DIED)), 0) == (1, 1)


def test_who_asked_hears_of_one_that_failed_when_the_others_are_done(isolation: Isolation) -> None:
    """On command an error names the log; the rest was done all the same."""
    done: list[int] = []

    def job(found: Sequence[PartitionLog]) -> int:
        Job(0)(found)
        done.extend(log.partition for log in found)
        return 0

    with pytest.raises(FoldFailedError, match="the fold of t-0 failed: No luck"):
        isolation.run(logs(isolation), job, 0, asked=True)
    assert done == [1, 2]
