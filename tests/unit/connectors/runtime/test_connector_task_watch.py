"""How a connector's run begins, and what it sees while a micro-batch is under way; without Spark and brokers."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from compactor.errors import FencedError, IngestError, StorageError
from connectors.config.files import load_connector, load_worker
from connectors.runtime import connector_task
from connectors.runtime.connector_task import (
    FENCE_CHECK_MS,
    IDLE_MS,
    REPORT_MS,
    WATCH_MS,
    WATCH_WORKED_MS,
    ConnectorTask,
    TaskReport,
)
from connectors.runtime.stop import Stop
from tests.support.cli import connector_file, worker_file
from tests.support.clocks import ManualClock
from tests.support.memory.storage import MemoryStorage


class Running:
    """A task whose engine is in a micro-batch that does not end, and what it reported, in ms since its start."""

    def __init__(self, folder: Path) -> None:
        worker = load_worker(worker_file(folder))
        config = load_connector(connector_file(folder), worker).config
        self.clock, self.stop, self.lock = ManualClock(0), Stop(), Mock()
        self.reported: list[int] = []
        self.components = Mock()
        self.components.engine.counts.return_value = {"records_read": 0}
        self.catalog = self.components.catalog = Mock(epoch=3)
        self.threads = (Mock(failure=None), Mock(failure=None))
        self.asked: list[bool] = []
        self.task = ConnectorTask(Mock(), worker, config, self.clock, Mock(), self._take, self.lock)

    def _take(self, report: TaskReport) -> None:
        self.reported.append(self.clock.now_ms())
        self.asked.append(report.asked)

    def watch(self) -> None:
        """Until it ends."""
        reading, maintenance = cast("Any", self.threads)
        self.task._watch(reading, maintenance, self.components, self.stop)


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


def test_a_stop_and_the_status_wait_for_no_micro_batch(running: Running) -> None:
    """The status is written every half second, so that a long take does not look like a dead worker."""
    running.catalog.refresh.side_effect = running.stop.finish
    running.watch()
    assert {after - before for before, after in pairwise(running.reported)} == {WATCH_MS}
    assert running.reported[-1] >= FENCE_CHECK_MS
    assert not running.components.engine.tick.called


def test_one_that_works_is_looked_at_less_often(running: Running) -> None:
    """A hundred of them that are idle cost; while the lock is not held it is asked for as before."""
    running.task.worked = True
    running.lock.claim.side_effect = [*[False] * 3, *[True] * 10]
    running.catalog.refresh.side_effect = running.stop.finish
    running.watch()
    gaps = [after - before for before, after in pairwise(running.reported)]
    assert gaps[:3] + gaps[-1:] == [WATCH_MS, WATCH_MS, WATCH_MS, WATCH_WORKED_MS]


def test_a_report_that_has_not_changed_is_repeated_rarely(running: Running) -> None:
    """What has changed, and a request, are reported with the next look; the supervisor looks for restarts if asked."""
    running.task.worked = True
    counted, asked = {4_000: 1, 9_000: 2}, {6_000}
    counts: dict[str, int] = {"records_read": 0}

    def count() -> dict[str, int]:
        counts["records_read"] = counted.get(running.clock.now_ms(), counts["records_read"])
        return dict(counts)

    running.components.engine.counts.side_effect = count
    running.components.requests.is_any_pending.side_effect = lambda: running.clock.now_ms() in asked

    def refresh() -> None:
        if running.clock.now_ms() > 3 * REPORT_MS:
            running.stop.finish()

    running.catalog.refresh.side_effect = refresh
    running.watch()
    changed = [(500, False), (4_000, False), (6_000, True), (7_000, False), (9_000, False)]
    repeated = (9_000 + REPORT_MS, False)
    assert list(zip(running.reported, running.asked, strict=True))[:6] == [*changed, repeated]


def test_a_thread_that_ends_is_seen_at_once(running: Running) -> None:
    """It wakes the thread that watches, which looks at nothing before that is due."""
    running.stop.wake()
    running.threads[0].is_alive.side_effect = [True, True, False]
    running.watch()
    assert (running.clock.now_ms(), running.reported) == (WATCH_MS, [WATCH_MS])
    running.threads[1].failure = StorageError("Full.")
    running.threads[0].is_alive.side_effect = None
    running.stop.wake()
    with pytest.raises(StorageError):
        running.watch()
    assert running.clock.now_ms() == WATCH_MS


def test_both_threads_wake_who_watches(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are given the callback before they are started."""
    reading, maintenance = running.threads
    for thread in running.threads:
        thread.start.side_effect = lambda one=thread: one.when_over.assert_called_once_with(running.stop.wake)
    reading.is_alive.return_value = False
    monkeypatch.setattr(running.task, "_maintenance_thread", lambda *_, **__: maintenance)
    monkeypatch.setattr(running.task, "_reading_thread", lambda *_, **__: reading)
    with ExitStack() as stack, pytest.raises(IngestError, match="orders-keeper: reading from its topics has ended"):
        running.task._run(running.components, Mock(), stack, running.stop, once=False)  # and so it is started again
    assert reading.start.called
    assert maintenance.start.called


@pytest.mark.parametrize("pending", [True, False])
def test_a_request_wakes_maintenance(running: Running, *, pending: bool) -> None:
    """Maintenance sleeps until something else is due; only the watching thread looks for requests of commands."""
    running.components.requests.is_any_pending.return_value = pending
    running.catalog.refresh.side_effect = running.stop.finish
    running.watch()
    assert running.threads[1].wake.called is pending


def test_a_newer_owner_is_seen_during_a_micro_batch(running: Running) -> None:
    """At the first look into the catalog after it has come."""
    running.catalog.refresh.side_effect = FencedError("Newer.")
    with pytest.raises(FencedError):
        running.watch()
    assert running.clock.now_ms() == pytest.approx(FENCE_CHECK_MS, abs=2 * WATCH_MS)


@pytest.mark.parametrize("part", [0, 1])
def test_what_another_thread_fails_with_is_seen_during_a_micro_batch(running: Running, part: int) -> None:
    """A fold's failure, or a publish's between two micro-batches, ends the run."""
    running.catalog.refresh.side_effect = lambda: setattr(running.threads[part], "failure", StorageError("Full."))
    with pytest.raises(StorageError):
        running.watch()


def test_the_lock_is_claimed_again_as_soon_as_it_is_free(running: Running) -> None:
    """A command that found it held by another command must not find it free, and take over, a moment later."""
    running.lock.claim.side_effect = [False, False, True, *[True] * 10]
    running.catalog.refresh.side_effect = running.stop.finish
    running.watch()
    assert running.lock.claim.call_count == 4  # three until it was held, one with the look into the catalog


@pytest.mark.parametrize(
    ("busy_until_ms", "ran_ms", "worked"),
    [(0, IDLE_MS - 2 * WATCH_MS, False), (0, IDLE_MS + 2 * WATCH_MS, True), (60_000, 60_000, False)],
)
def test_a_connector_has_worked_when_it_has_nothing_to_do(
    running: Running, busy_until_ms: int, ran_ms: int, worked: bool
) -> None:
    """For a while, in which nothing failed; a step that does not end proves nothing."""
    running.components.engine.is_idle.side_effect = lambda: running.clock.now_ms() >= busy_until_ms

    def look() -> None:
        if running.clock.now_ms() >= ran_ms - FENCE_CHECK_MS:
            running.stop.finish()

    running.catalog.refresh.side_effect = look
    running.watch()
    assert running.task.worked is worked


def test_a_connector_has_worked_when_a_micro_batch_was_taken(running: Running) -> None:
    """And what was due with it published."""
    running.task._took(running.components.engine)
    assert running.task.worked


def test_a_store_that_refuses_the_lock_does_not_end_a_connector(running: Running) -> None:
    """The lock is a courtesy; who may commit is the epoch's to say."""
    running.lock.claim.side_effect = StorageError("Full.")
    running.catalog.refresh.side_effect = running.stop.finish
    running.watch()
    assert running.lock.claim.called


def test_a_run_that_is_stopped_before_it_began_takes_nothing_over(running: Running) -> None:
    """Nobody is fenced for a worker that ends."""
    running.stop.finish()
    running.task.take_over = Mock()  # type: ignore[method-assign]
    running.task.run(running.stop, Mock(), once=False, start=Mock(number=1))
    assert not running.task.take_over.called


@pytest.mark.parametrize(
    ("found", "stopping", "raised"),
    [
        (FencedError("Newer."), False, FencedError),
        (FencedError("Newer."), True, ValueError),
        (StorageError("Away."), False, ValueError),
        (None, False, ValueError),
    ],
)
def test_a_run_that_fails_looks_whether_it_was_fenced(
    running: Running, found: Exception | None, stopping: bool, raised: type[Exception]
) -> None:
    """A newer owner's vacuum may be why: to take over from it would fence who is in the right."""

    def fails(*_: object, **__: object) -> None:
        if stopping:
            running.stop.finish()
        raise ValueError("runs/3-a-0.parquet does not exist")

    running.catalog.refresh.side_effect = found
    running.task.take_over = Mock(return_value=running.components)  # type: ignore[method-assign]
    running.task._run = fails  # type: ignore[method-assign]
    with pytest.raises(raised):
        running.task.run(running.stop, Mock(), once=False, start=Mock(number=1))


@pytest.mark.parametrize(("sent", "waited_for"), [(0, False), (2, True)])
def test_dead_letters_are_waited_for_if_this_run_has_sent_any(running: Running, sent: int, *, waited_for: bool) -> None:
    """Their topic may be others' too: a run that has sent none does not wait for it."""
    running.components.engine.counters.values.return_value = {"dead_letters": sent}
    running.task._check_visible(running.components)
    running.components.broker.check_visible.assert_called_once_with(running.catalog.state, letters=waited_for)


def test_a_checkpoint_of_an_earlier_version_is_removed(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """It held Spark's own record of progress, which nothing reads any more."""
    storage = running.task._storage = MemoryStorage()
    storage.write("checkpoint/3/offsets/0", b"")
    monkeypatch.setattr(running.task, "_tasks_max", lambda *_: 1)
    monkeypatch.setattr(connector_task, "source_options", lambda *_, **__: Mock())
    running.task._reading_thread(running.components, Mock(), threading.Event(), once=False)
    assert storage.list("checkpoint") == []


@pytest.mark.parametrize(("said", "taken"), [(5, 5), (None, 3)])
def test_a_connector_without_tasks_max_has_its_share(running: Running, said: int | None, taken: int) -> None:
    """The query knows how many connectors share Spark's cores; a connector's own word comes first."""
    running.task._connector = Mock(tasks_max=said)
    running.task.take_over = Mock(return_value=running.components)  # type: ignore[method-assign]
    running.task._run = Mock()  # type: ignore[method-assign]
    running.task.run(running.stop, Mock(tasks_max=3), once=False, start=Mock(number=1))
    assert running.task.take_over.call_args.args[2] == taken
