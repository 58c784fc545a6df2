"""When the thread behind publishing does what, and how it ends; without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from compactor.clean.cleaner import Round
from compactor.errors import SnapshotError, SnapshotStorageError, StorageError
from connectors.clock import SystemClock
from connectors.runtime.maintenance_thread import (
    FIRST_VACUUM_MS,
    LOOK_MS,
    POLL_MS,
    SNAPSHOT_RETRY_MS,
    VACUUM_EVERY_MS,
    MaintenanceSchedule,
    MaintenanceThread,
)
from tests.support.clocks import ManualClock
from tests.support.kafka import wait_until

TIMEOUT_S = 30.0
SCHEDULE = MaintenanceSchedule(initial_delay_ms=60_000, backoff_ms=15_000)


class Work:
    """Notes what it is asked; has as many rounds of work as it is told."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.rounds = 0
        self.snapshots_due = False
        self.lost_turn = False
        self.typed: object = None
        self.takes: Callable[[], object] = lambda: None
        self.taken: tuple[object, ...] = ()
        self.fails: Exception | None = None
        self.snapshot_fails: Exception | None = None
        self.snapshot_failures: list[Exception] = []
        self.interrupted = threading.Event()
        self.cleaner = self.snapshots = self

    def round(self, now_ms: int) -> Round:
        self.did.append("round")
        if self.fails:
            raise self.fails
        self.rounds -= 1
        return Round(cleaned=int(self.rounds >= 0))

    def due(self, now_ms: int) -> bool:
        return self.snapshots_due

    def snapshot(self, now_ms: int, *, asked: bool, again: bool) -> tuple[object, ...]:
        assert (asked, again) == (False, False), "By interval nothing is repeated."
        self.did.append("snapshot")
        if self.snapshot_fails:
            raise self.snapshot_fails
        self.takes()
        return self.taken

    def failed(self, error: Exception, now_ms: int) -> None:
        self.snapshot_failures.append(error)

    def vacuum(self, now_ms: int, grace_ms: int, running: Any) -> None:
        self.did.append("vacuum")

    def interrupt(self) -> None:
        self.interrupted.set()


def background(work: Work, clock: Any, schedule: MaintenanceSchedule = SCHEDULE) -> tuple[MaintenanceThread, Mock]:
    """The thread, not started, and what is used of Spark: a stand-in that notes the groups that are cancelled."""
    context = Mock()
    spark = cast("Any", SimpleNamespace(sparkContext=context))
    requests = cast("Any", SimpleNamespace(answer_all=lambda: None))
    return MaintenanceThread(spark, "c", cast("Any", work), requests, tuple, clock, schedule), context


def after(thread: MaintenanceThread, clock: ManualClock, work: Work, ms: int) -> list[str]:
    """What a turn does once `ms` have passed."""
    clock.advance(ms)
    work.did.clear()
    thread._turn()
    return work.did.copy()


def test_the_first_round_waits_and_an_idle_one_is_followed_by_a_pause() -> None:
    """log.cleaner.initial.delay.ms after the start; log.cleaner.backoff.ms after a round in which nothing was due."""
    work, clock = Work(), ManualClock()
    thread, _ = background(work, clock)
    work.rounds = 2
    thread._next_vacuum_ms = 10**12
    found = [after(thread, clock, work, ms) for ms in (59_999, 1, 0, 0, 14_999, 1)]
    assert found == [[], ["round"], ["round"], ["round"], [], ["round"]]


def test_a_snapshot_without_anything_to_take_is_tried_again_later() -> None:
    """Where all topics are set aside, or nothing is published, the next try comes a minute later; else when due."""
    work, clock = Work(), ManualClock()
    thread, _ = background(work, clock, MaintenanceSchedule(initial_delay_ms=10**9, backoff_ms=0))
    thread._next_vacuum_ms = 10**12
    work.snapshots_due = True
    pause_ms = SNAPSHOT_RETRY_MS
    assert [after(thread, clock, work, ms) for ms in (0, pause_ms - 1, 1)] == [["snapshot"], [], ["snapshot"]]
    work.taken = ("one",)
    assert [after(thread, clock, work, ms) for ms in (pause_ms, 0)] == [["snapshot"], ["snapshot"]]
    work.taken, work.lost_turn = (), True
    assert [after(thread, clock, work, 0) for _ in range(2)] == [["snapshot"], ["snapshot"]], "Another had its turn."


def test_topics_that_have_not_changed_hold_up_no_snapshot() -> None:
    """None is due any more then, and what changes a second later has its snapshot when its interval is over."""
    work, clock = Work(), ManualClock()
    thread, _ = background(work, clock, MaintenanceSchedule(initial_delay_ms=10**9, backoff_ms=0))

    def unchanged() -> None:
        work.snapshots_due = False

    work.snapshots_due, work.takes = True, unchanged
    did = [after(thread, clock, work, 0)]
    work.snapshots_due, work.takes = True, lambda: None
    did.append(after(thread, clock, work, 1_000))
    assert did == [["snapshot"], ["snapshot"]]


def test_a_long_typed_snapshot_leaves_the_turn_to_others_for_as_long() -> None:
    """One that is due at once, by a topic of thousands of columns, would hold the one turn of a worker for good."""
    work, clock = Work(), ManualClock()
    thread, _ = background(work, clock, MaintenanceSchedule(initial_delay_ms=10**9, backoff_ms=0))
    work.snapshots_due, work.typed, work.taken = True, object(), ("one",)
    work.takes = lambda: clock.advance(5_000)
    assert [after(thread, clock, work, ms) for ms in (0, 4_999, 1)] == [["snapshot"], [], ["snapshot"]]
    work.typed = None
    assert [after(thread, clock, work, ms) for ms in (5_000, 0)] == [["snapshot"], ["snapshot"]], "Bytes need no turn."


def test_once_takes_no_snapshot_by_the_clock() -> None:
    """`run --once` takes its one at its end: two of the same state would push older ones out."""
    work, clock = Work(), ManualClock()
    work.snapshots_due = True
    thread, _ = background(work, clock, replace(SCHEDULE, snapshots=False))
    thread._turn()
    assert work.did == []


@pytest.mark.parametrize("error", [SnapshotStorageError("No space left."), SnapshotError("Another catalog's.")])
def test_a_snapshot_that_fails_ends_nothing(error: Exception) -> None:
    """It is noted and waited for; rounds and vacuum go on in the same turn."""
    work, clock = Work(), ManualClock()
    thread, _ = background(work, clock, MaintenanceSchedule(initial_delay_ms=0, backoff_ms=0))
    work.snapshots_due = True
    work.snapshot_fails = error
    assert after(thread, clock, work, VACUUM_EVERY_MS) == ["snapshot", "round", "vacuum"]
    assert work.snapshot_failures == [work.snapshot_fails]
    assert after(thread, clock, work, 0) == ["round"]


def test_files_are_vacuumed_every_ten_minutes() -> None:
    """The first time after a minute: runs that are all short leave files behind too."""
    work, clock = Work(), ManualClock()
    thread, _ = background(work, clock, MaintenanceSchedule(initial_delay_ms=10**9, backoff_ms=0))
    found = [after(thread, clock, work, ms) for ms in (FIRST_VACUUM_MS - 1, 1, 1, VACUUM_EVERY_MS)]
    assert found == [[], ["vacuum"], [], ["vacuum"]]


@pytest.mark.parametrize("stopped", [False, True], ids=["by itself", "after a stop"])
def test_an_error_ends_the_connector_unless_a_stop_caused_it(*, stopped: bool) -> None:
    """What the thread fails with is the task's to raise; what fails after a stop is no failure."""
    work = Work()
    work.fails = StorageError("The store is gone.")
    thread, context = background(work, SystemClock(), MaintenanceSchedule(initial_delay_ms=0, backoff_ms=0))
    if stopped:
        thread.stop()
        context.setJobGroup.side_effect = work.fails  # the event is set: no turn begins
    thread.start()
    thread.join()
    assert (thread.failure is None) is stopped


@pytest.mark.parametrize("finish", [True, False], ids=["after the job", "at once"])
def test_a_stop_lets_the_job_finish_or_cancels_it(*, finish: bool) -> None:
    """Draining or not, it returns once the job that ran has ended; and it can be called again."""
    work = Work()
    thread, context = background(work, SystemClock(), MaintenanceSchedule(initial_delay_ms=0, backoff_ms=0))
    began, done = threading.Event(), threading.Event()

    def job(now_ms: int) -> Round:
        began.set()
        (done if finish else work.interrupted).wait()
        return Round()

    work.round = job  # type: ignore[method-assign]
    thread.start()
    began.wait()
    threading.Timer(0.01, done.set).start()
    thread.cancel(finishes=lambda: finish)
    thread.cancel(finishes=lambda: finish)
    assert done.is_set() or not finish
    assert work.interrupted.is_set() is not finish
    cancelled = {call.args[0] for call in context.cancelJobGroup.call_args_list}
    assert cancelled == (set() if finish else {"keyfold-maintenance-c"})


def test_one_that_was_never_started_is_stopped_at_once() -> None:
    """A run that fails while it takes over has nothing to wait for."""
    thread, _ = background(Work(), SystemClock())
    thread.cancel(finishes=lambda: True)
    assert thread.failure is None


@pytest.mark.parametrize(
    ("left_ms", "pause_ms"), [(60_000, LOOK_MS), (3_000, 3_000), (100, POLL_MS), (-1_000, POLL_MS)]
)
@pytest.mark.parametrize("which", ["_next_round_ms", "_next_vacuum_ms"])
def test_it_sleeps_until_something_is_due(which: str, left_ms: int, pause_ms: int) -> None:
    """But looks for snapshots now and then, and never spins where rounds follow one another."""
    clock = ManualClock()
    thread, _ = background(Work(), clock)
    setattr(thread, which, clock.monotonic_ms() + left_ms)
    assert thread._pause_ms() == pause_ms


class Unhurried(SystemClock):
    """Waits for events only, however few ms are asked for."""

    def wait_ms(self, ms: int, event: threading.Event) -> bool:
        return event.wait(TIMEOUT_S)


def test_a_request_and_a_stop_are_waited_for_by_nobody() -> None:
    """Each wakes the thread; a stop begins no other turn."""
    thread, _ = background(Work(), Unhurried())
    turns = threading.Semaphore(0)
    thread._turn = turns.release  # type: ignore[method-assign]
    thread.start()
    for _ in range(2):
        thread.wake()
        assert turns.acquire(timeout=TIMEOUT_S / 2)
    thread.stop()
    wait_until(lambda: not thread.is_alive(), "it ends", TIMEOUT_S / 2)
    assert not turns.acquire(blocking=False)
