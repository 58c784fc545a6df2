"""When the thread behind publishing does what, and how it ends; without Spark."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from compactor.clean.cleaner import Round
from compactor.errors import SnapshotError, StorageError
from compactor.snapshot.location import SnapshotStorageError
from connectors.clock import SystemClock
from connectors.runtime.maintenance_thread import (
    FIRST_VACUUM_MS,
    SNAPSHOT_RETRY_SECONDS,
    VACUUM_EVERY_MS,
    MaintenanceSchedule,
    MaintenanceThread,
)
from tests.support.clocks import ManualClock

RHYTHM = MaintenanceSchedule(initial_delay_ms=60_000, backoff_ms=15_000)


class Upkeep:
    """Notes what it is asked; has as many rounds of work as it is told."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.rounds = 0
        self.snapshots_due = False
        self.taken: tuple[object, ...] = ()
        self.fails: Exception | None = None
        self.shelf_fails: Exception | None = None
        self.shelf_failures: list[Exception] = []
        self.interrupted = threading.Event()

    def round(self, now_ms: int) -> Round:
        self.did.append("round")
        if self.fails:
            raise self.fails
        self.rounds -= 1
        return Round(cleaned=int(self.rounds >= 0))

    def snapshot_due(self, now_ms: int) -> bool:
        return self.snapshots_due

    def snapshot(self, now_ms: int, *, asked: bool) -> tuple[object, ...]:
        assert not asked
        self.did.append("snapshot")
        if self.shelf_fails:
            raise self.shelf_fails
        return self.taken

    def snapshot_failed(self, error: Exception, now_ms: int) -> None:
        self.shelf_failures.append(error)

    def vacuum(self, now_ms: int, grace_ms: int, running: Any) -> None:
        self.did.append("vacuum")

    def interrupt(self) -> None:
        self.interrupted.set()


def background(upkeep: Upkeep, clock: Any, rhythm: MaintenanceSchedule = RHYTHM) -> tuple[MaintenanceThread, Mock]:
    """The thread, not started, and what is used of Spark: a stand-in that notes the groups that are cancelled."""
    context = Mock()
    spark = cast("Any", SimpleNamespace(sparkContext=context))
    answers = cast("Any", SimpleNamespace(answer=lambda: None))
    return MaintenanceThread(spark, "c", cast("Any", upkeep), answers, tuple, clock, rhythm), context


def after(thread: MaintenanceThread, clock: ManualClock, upkeep: Upkeep, ms: int) -> list[str]:
    """What a turn does once `ms` have passed."""
    clock.advance(ms)
    upkeep.did.clear()
    thread._turn()
    return upkeep.did.copy()


def test_the_first_round_waits_and_an_idle_one_is_followed_by_a_pause() -> None:
    """log.cleaner.initial.delay.ms after the start; log.cleaner.backoff.ms after a round in which nothing was due."""
    upkeep, clock = Upkeep(), ManualClock()
    thread, _ = background(upkeep, clock)
    upkeep.rounds = 2
    thread._next_vacuum = math.inf
    found = [after(thread, clock, upkeep, ms) for ms in (59_999, 1, 0, 0, 14_999, 1)]
    assert found == [[], ["round"], ["round"], ["round"], [], ["round"]]


def test_a_snapshot_without_anything_to_take_is_tried_again_later() -> None:
    """Where all topics are set aside, or nothing is published, the next try comes a minute later; else when due."""
    upkeep, clock = Upkeep(), ManualClock()
    thread, _ = background(upkeep, clock, MaintenanceSchedule(initial_delay_ms=10**9, backoff_ms=0))
    thread._next_vacuum = math.inf
    upkeep.snapshots_due = True
    pause_ms = int(SNAPSHOT_RETRY_SECONDS * 1000)
    assert [after(thread, clock, upkeep, ms) for ms in (0, pause_ms - 1, 1)] == [["snapshot"], [], ["snapshot"]]
    upkeep.taken = ("one",)
    assert [after(thread, clock, upkeep, ms) for ms in (pause_ms, 0)] == [["snapshot"], ["snapshot"]]


def test_once_takes_no_snapshot_by_the_clock() -> None:
    """`run --once` takes its one at its end: two of the same state would push older ones out."""
    upkeep, clock = Upkeep(), ManualClock()
    upkeep.snapshots_due = True
    thread, _ = background(upkeep, clock, replace(RHYTHM, snapshots=False))
    thread._turn()
    assert upkeep.did == []


@pytest.mark.parametrize("error", [SnapshotStorageError("No space left."), SnapshotError("Another catalog's.")])
def test_a_snapshot_that_fails_ends_nothing(error: Exception) -> None:
    """It is noted and waited for; rounds and vacuum go on in the same turn."""
    upkeep, clock = Upkeep(), ManualClock()
    thread, _ = background(upkeep, clock, MaintenanceSchedule(initial_delay_ms=0, backoff_ms=0))
    upkeep.snapshots_due = True
    upkeep.shelf_fails = error
    assert after(thread, clock, upkeep, VACUUM_EVERY_MS) == ["snapshot", "round", "vacuum"]
    assert upkeep.shelf_failures == [upkeep.shelf_fails]
    assert after(thread, clock, upkeep, 0) == ["round"]


def test_files_are_vacuumed_every_ten_minutes() -> None:
    """The first time after a minute: lives that are all short leave files behind too."""
    upkeep, clock = Upkeep(), ManualClock()
    thread, _ = background(upkeep, clock, MaintenanceSchedule(initial_delay_ms=10**9, backoff_ms=0))
    found = [after(thread, clock, upkeep, ms) for ms in (FIRST_VACUUM_MS - 1, 1, 1, VACUUM_EVERY_MS)]
    assert found == [[], ["vacuum"], [], ["vacuum"]]


@pytest.mark.parametrize("stopped", [False, True], ids=["by itself", "broken off by a stop"])
def test_an_error_ends_the_connector_unless_a_stop_caused_it(*, stopped: bool) -> None:
    """What the thread fails with is the pipeline's to raise; what a stop breaks off is no failure."""
    upkeep = Upkeep()
    upkeep.fails = StorageError("The store is gone.")
    thread, _ = background(upkeep, SystemClock(), MaintenanceSchedule(initial_delay_ms=0, backoff_ms=0))
    if stopped:
        thread._stop.set()
    thread._guarded(thread._turn)
    assert (thread.failure is None) is stopped


@pytest.mark.parametrize("finish", [True, False], ids=["after the job", "at once"])
def test_a_stop_lets_the_job_finish_or_breaks_it_off(*, finish: bool) -> None:
    """Patient or not, it returns once the job that ran has ended; and it can be called again."""
    upkeep = Upkeep()
    thread, context = background(upkeep, SystemClock(), MaintenanceSchedule(initial_delay_ms=0, backoff_ms=0))
    began, done = threading.Event(), threading.Event()

    def job(now_ms: int) -> Round:
        began.set()
        (done if finish else upkeep.interrupted).wait()
        return Round()

    upkeep.round = job  # type: ignore[method-assign]
    thread.start()
    began.wait()
    threading.Timer(0.01, done.set).start()
    thread.stop(lambda: finish)
    thread.stop(lambda: finish)
    assert done.is_set() or not finish
    assert upkeep.interrupted.is_set() is not finish
    cancelled = {call.args[0] for call in context.cancelJobGroup.call_args_list}
    assert cancelled == (set() if finish else {"keyfold-upkeep-c"})


def test_who_was_never_started_is_stopped_at_once() -> None:
    """A life that fails while it takes over has nothing to wait for."""
    thread, _ = background(Upkeep(), SystemClock())
    thread.stop(lambda: True)
    assert thread.failure is None
