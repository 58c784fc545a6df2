"""Which logs a failed job concerns: which are verified, which go into quarantine and for how long."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from compactor.catalog.catalog import Catalog
from compactor.clean.due import Reason, quarantined
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
from compactor.model.log import PartitionLog, Quarantined, empty
from compactor.model.record import TopicPartition
from compactor.model.state import apply
from compactor.quarantine import quarantine, verify
from compactor.quarantine.quarantine import MAX_FAILURES, QuarantineManager, may_be_damage
from compactor.runs import checksums
from tests.support.engine import new_state
from tests.support.java_errors import JavaError, job_cancelled, worker_ended
from tests.support.logs import run
from tests.support.memory.storage import MemoryStorage

MINUTE = 60_000
PAGE = "org.apache.parquet.io.ParquetDecodingException: could not verify dictionary page integrity"


class Py4JNetworkError(Exception):
    """As py4j raises where the JVM is gone; it is told by its name."""


def jvm_gone() -> Exception:
    """An error of Spark's whose cause is that nobody answers."""
    error = RuntimeError("An error occurred while calling o42.collectToPython")
    error.__cause__ = Py4JNetworkError("Error while sending or receiving")
    return error


@pytest.fixture
def catalog() -> Catalog:
    """Three partitions that have nothing yet."""
    catalog = Catalog.open(MemoryStorage(), "c")
    catalog.take_over("test", 0)
    topic = AddTopic(topic="t", topic_id="T", output="o", output_id="O")
    adds = [AddPartition(topic="t", partition=one, bucket=0, start=0) for one in range(3)]
    catalog.commit(lambda _: [topic, *adds], 0)
    return catalog


@pytest.fixture
def stopping() -> threading.Event:
    """Set by a stop."""
    return threading.Event()


@pytest.fixture
def manager(catalog: Catalog, stopping: threading.Event) -> QuarantineManager:
    """The quarantine of these partitions."""
    return QuarantineManager(catalog, stopping)


def logs(catalog: Catalog, *partitions: int) -> list[PartitionLog]:
    return [log for log in catalog.state.logs if log.partition in (partitions or range(3))]


def held(catalog: Catalog) -> list[int]:
    return [log.partition for log in logs(catalog) if log.quarantine]


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
        (job_cancelled(), False),
        (worker_ended(), False),
        (ConnectionRefusedError(111, "Connection refused"), False),
        (jvm_gone(), False),
        (PublishInterruptedError("Fenced."), False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_files_are_read_only_for_what_a_file_can_cause(error: Exception, looked: bool) -> None:
    """A job that was cancelled, or whose process died, says nothing about files: nobody reads them all for that."""
    assert may_be_damage(error) is looked


def test_nothing_is_looked_at_once_a_stop_was_asked_for(manager: QuarantineManager, stopping: threading.Event) -> None:
    """What fails then is the stop's doing, whatever it says."""
    assert manager.suspects_damage(RuntimeError(PAGE))
    stopping.set()
    assert not manager.suspects_damage(RuntimeError(PAGE))


def test_a_stop_ends_the_reading_of_files_between_two(
    manager: QuarantineManager, catalog: Catalog, stopping: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not go on for as long as there are files; what was not read is neither set aside nor released."""
    read: list[str] = []

    def counted(_: object, path: object) -> None:
        read.append(str(path))
        stopping.set()

    monkeypatch.setattr(checksums, "verify_footer", counted)
    monkeypatch.setattr(checksums, "verify_file", lambda *_: True)
    runs = [Append(topic="t", partition=one, start=0, end=2, run=run(0, 2, 10)) for one in range(3)]
    catalog.commit(lambda _: runs, 0)
    with pytest.raises(StoppedError):
        manager.quarantine_damaged(logs(catalog), verify.unpublished_range, 0)
    assert len(read) == 1
    assert held(catalog) == []


def test_one_that_fails_alone_is_set_aside_after_some_times(manager: QuarantineManager, catalog: Catalog) -> None:
    """The others are done meanwhile, each by itself."""
    for _ in range(MAX_FAILURES):
        assert manager.run(logs(catalog), Job(1), 0) == (1, 1)
    assert held(catalog) == [1]


def test_where_all_fail_alone_it_is_not_the_logs(manager: QuarantineManager, catalog: Catalog) -> None:
    """No room for Spark to work in fails every fold: the connector says so, and sets nothing aside."""
    for _ in range(MAX_FAILURES + 1):
        with pytest.raises(FoldFailedError, match=r"3 partitions failed.*No luck\. See whether Spark has room"):
            manager.run(logs(catalog), Job(0, 1, 2), 0)
    assert held(catalog) == []


def test_logs_that_failed_beside_others_go_on_being_counted(manager: QuarantineManager, catalog: Catalog) -> None:
    """Two that failed while a third was folded are to blame, also when nothing but the two is due."""
    assert manager.run(logs(catalog), Job(0, 1), 0) == (1,)
    for _ in range(MAX_FAILURES - 1):
        assert manager.run(logs(catalog, 0, 1), Job(0, 1), 0) == ()
    assert held(catalog) == [0, 1]


def test_a_job_that_was_cancelled_is_not_tried_again_log_by_log(manager: QuarantineManager, catalog: Catalog) -> None:
    """Somebody broke it off: it raises what it failed with."""
    with pytest.raises(JavaError, match="SPARK_JOB_CANCELLED"):
        manager.run(logs(catalog), Job(0, error=job_cancelled()), 0)
    assert held(catalog) == []


def test_a_damaged_catalog_is_no_logs_fault(manager: QuarantineManager, catalog: Catalog) -> None:
    """It is raised as it is, with what can be done about it."""
    error = DamagedError("catalog/3.json is damaged.")
    with pytest.raises(DamagedError):
        manager.run(logs(catalog), Job(0, 1, 2, error=error), 0)


def test_a_worker_that_dies_of_one_log_is_no_reason_to_read_files(catalog: Catalog, stopping: threading.Event) -> None:
    """The logs are tried alone, without a look at their files."""

    def unread(*_: object) -> list[None]:
        raise AssertionError("files were read")

    manager = QuarantineManager(catalog, stopping, unread)
    assert manager.run(logs(catalog), Job(2, error=worker_ended()), 0) == (1, 1)


def test_who_asked_hears_of_one_that_failed_when_the_others_are_done(
    manager: QuarantineManager, catalog: Catalog
) -> None:
    """On command an error names the log; the rest was done all the same."""
    done: list[int] = []

    def job(found: Sequence[PartitionLog]) -> int:
        Job(0)(found)
        done.extend(log.partition for log in found)
        return 0

    with pytest.raises(FoldFailedError, match="the fold of t-0 failed: No luck"):
        manager.run(logs(catalog), job, 0, asked=True)
    assert done == [1, 2]


def _log(held: Quarantined | None = None) -> PartitionLog:
    return replace(empty(TopicPartition("t", 0), 0, 0, None), quarantine=held)


@pytest.mark.parametrize(
    ("failures", "wait_ms"),
    [(0, MINUTE), (1, 2 * MINUTE), (5, 32 * MINUTE), (6, 60 * MINUTE), (40, 60 * MINUTE)],
)
def test_each_failure_waits_twice_as_long(failures: int, wait_ms: int) -> None:
    """A minute at first, an hour at most; the time since when it is set aside stays."""
    held = Quarantined(since_ms=5, retry_ms=9, failures=failures, error="old") if failures else None
    found = quarantine.quarantine_of(_log(held), "new", 1000).quarantined
    assert (found.retry_ms - 1000, found.failures, found.error) == (wait_ms, failures + 1, "new")
    assert found.since_ms == (5 if failures else 1000)


@pytest.mark.parametrize(("before", "now", "after"), [(False, False, False), (True, False, True), (False, True, True)])
def test_what_cannot_be_published_stays_so(before: bool, now: bool, after: bool) -> None:
    """A fold that fails later does not let publishing go on: what is to be sent is still damaged."""
    held = Quarantined(since_ms=0, retry_ms=0, failures=1, error="e", publishing=before)
    assert quarantine.quarantine_of(_log(held), "e", 0, publishing=now).quarantined.publishing is after


def test_a_log_that_is_set_aside_is_held_until_it_is_released() -> None:
    """No fold takes it; it is due to be looked at from its time on, not before."""
    state = new_state({0: 0, 1: 0})
    set_aside = quarantine.quarantine_of(state.logs[1], "gone", 100)
    held = apply(state, [set_aside])
    assert quarantined(held.logs) == {TopicPartition("t", 1): Reason.QUARANTINED}
    assert quarantine.due_for_recheck(held.logs, 100 + MINUTE - 1) == ()
    assert quarantine.due_for_recheck(held.logs, 100 + MINUTE) == (held.logs[1],)
    assert quarantine.due_for_recheck(held.logs, 100 - 60 * MINUTE) == (
        held.logs[1],
    )  # set aside by a clock that was ahead
    assert apply(held, [quarantine.release_of(held.logs[1])]) == state


def test_a_log_whose_fold_fails_is_still_published() -> None:
    """Unless what is to be sent is what cannot be read."""
    assert quarantine.quarantine_of(_log(), "e", 0).quarantined.publishing is False
