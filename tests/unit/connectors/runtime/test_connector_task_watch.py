"""How a connector's run begins, and what it sees while a micro-batch is under way; without Spark and brokers."""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from compactor.errors import FencedError, PublishInterruptedError, StorageError
from connectors.config.files import load_connector, load_worker
from connectors.runtime.cancellation import StopToken
from connectors.runtime.connector_task import FENCE_CHECK_MS, IDLE_S, TICK_MS, TOPICS_CHECK_MS, ConnectorTask
from connectors.source import stream
from tests.support.cli import connector_file, worker_file
from tests.support.clocks import ManualClock
from tests.support.memory.storage import MemoryStorage


class Running:
    """A task whose engine is in a micro-batch that does not end, and what it reported, in ms since its start."""

    def __init__(self, folder: Path) -> None:
        worker = load_worker(worker_file(folder))
        config = load_connector(connector_file(folder), worker).config
        self.clock, self.stop, self.lock = ManualClock(0), StopToken(), Mock()
        self.reported: list[int] = []
        self.components = Mock()
        self.components.engine.counters.values.return_value = {"records_read": 0}
        self.catalog = self.components.catalog = Mock(epoch=3)
        self.threads = (Mock(failure=None), Mock(failure=None))
        self.query = Mock(isActive=True)
        self.query.exception.return_value = None
        report = lambda _: self.reported.append(self.clock.now_ms())  # noqa: E731
        self.task = ConnectorTask(Mock(), worker, config, self.clock, Mock(), report, self.lock)

    def watch(self) -> None:
        """Until it ends."""
        self.task._watch(self.query, self.components, cast("Any", self.threads), self.stop)


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


def test_a_stop_and_the_status_wait_for_no_micro_batch(running: Running) -> None:
    """The status is written every half second, so that a long take does not look like a dead worker."""
    running.catalog.refresh.side_effect = running.stop.stop
    running.watch()
    assert {after - before for before, after in pairwise(running.reported)} == {TICK_MS}
    assert running.reported[-1] >= FENCE_CHECK_MS
    assert not running.components.engine.tick.called


def test_a_newer_owner_is_seen_during_a_micro_batch(running: Running) -> None:
    """At the first look into the catalog after it has come."""
    running.catalog.refresh.side_effect = FencedError("Newer.")
    with pytest.raises(FencedError):
        running.watch()
    assert running.clock.now_ms() == pytest.approx(FENCE_CHECK_MS, abs=2 * TICK_MS)


@pytest.mark.parametrize("part", [0, 1])
def test_what_another_thread_fails_with_is_seen_during_a_micro_batch(running: Running, part: int) -> None:
    """A fold's failure, or a publish's between two micro-batches, ends the run."""
    running.catalog.refresh.side_effect = lambda: setattr(running.threads[part], "failure", StorageError("Full."))
    with pytest.raises(StorageError):
        running.watch()


def test_the_lock_is_claimed_again_as_soon_as_it_is_free(running: Running) -> None:
    """A command that found it held by another command must not find it free, and take over, a moment later."""
    running.lock.claim.side_effect = [False, False, True, *[True] * 10]
    running.catalog.refresh.side_effect = running.stop.stop
    running.watch()
    assert running.lock.claim.call_count == 4  # three until it was held, one with the look into the catalog


@pytest.mark.parametrize(
    ("busy_until_ms", "ran_ms", "worked"),
    [(0, IDLE_S * 1000 - 2 * TICK_MS, False), (0, IDLE_S * 1000 + 2 * TICK_MS, True), (60_000, 60_000, False)],
)
def test_a_connector_has_worked_when_it_has_nothing_to_do(
    running: Running, busy_until_ms: int, ran_ms: int, worked: bool
) -> None:
    """For a while, in which nothing failed; a step that does not end proves nothing."""
    running.components.engine.is_idle.side_effect = lambda: running.clock.now_ms() >= busy_until_ms

    def look() -> None:
        if running.clock.now_ms() >= ran_ms - FENCE_CHECK_MS:
            running.stop.stop()

    running.catalog.refresh.side_effect = look
    running.watch()
    assert running.task.worked is worked


@pytest.mark.parametrize("fails", [False, True])
def test_a_connector_has_worked_when_a_micro_batch_was_taken(running: Running, fails: bool) -> None:
    """And what was due with it published."""
    engine = Mock()
    engine.counters.values.return_value = {"offsets_read": 0, "records_read": 0}
    engine.take.side_effect = ValueError("x") if fails else None
    with suppress(PublishInterruptedError):
        running.task._take(engine, cast("Any", None))
    assert running.task.worked is not fails


def test_a_store_that_refuses_the_lock_does_not_end_a_connector(running: Running) -> None:
    """The lock is a courtesy; who may commit is the epoch's to say."""
    running.lock.claim.side_effect = StorageError("Full.")
    running.catalog.refresh.side_effect = running.stop.stop
    running.watch()
    assert running.lock.claim.called


def test_spark_is_told_of_a_failure_in_few_words(running: Running) -> None:
    """The error itself is kept for the connector; of a long one Spark's own thread would die."""
    engine = Mock()
    engine.take.side_effect = ValueError("x" * 100_000)
    with pytest.raises(PublishInterruptedError) as caught:
        running.task._take(engine, cast("Any", None))
    assert (len(str(caught.value)) < 200, caught.value.__suppress_context__) == (True, True)
    with pytest.raises(ValueError, match="xxx"):
        running.watch()


def test_topics_are_looked_up_between_two_micro_batches(running: Running) -> None:
    """Where the engine is not free when it is time, it is asked again until it is."""
    stopped, engine = threading.Event(), Mock()
    asked: list[int] = []

    def commit(*_: object) -> bool:
        asked.append(running.clock.now_ms())
        if len(asked) == 3:
            stopped.set()
        return len(asked) > 1

    engine.commit.side_effect = commit
    running.task._tick(cast("Any", SimpleNamespace(broker=Mock(), engine=engine)), stopped)
    assert asked[1] - asked[0] < TICK_MS
    assert asked[2] - asked[0] == pytest.approx(TOPICS_CHECK_MS, abs=TICK_MS)


def test_a_run_that_is_stopped_before_it_began_takes_nothing_over(running: Running) -> None:
    """Nobody is fenced for a worker that ends."""
    running.stop.stop()
    running.task.take_over = Mock()  # type: ignore[method-assign]
    running.task.run(running.stop, once=False)
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
            running.stop.stop()
        raise ValueError("checkpoint/3/offsets does not exist")

    running.catalog.refresh.side_effect = found
    running.task.take_over = Mock(return_value=running.components)  # type: ignore[method-assign]
    running.task._run = fails  # type: ignore[method-assign]
    with pytest.raises(raised):
        running.task.run(running.stop, once=False)


def test_a_checkpoint_that_is_there_already_is_not_gone_on_with(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only catalog/ was restored, its next epoch has been there before, with batches that it does not know."""
    storage = running.task._storage = MemoryStorage()
    for epoch in (2, 3):
        storage.write(f"checkpoint/{epoch}/offsets/0", b"")
    found: list[list[str]] = []
    monkeypatch.setattr(running.task, "_tasks_max", lambda: 1)
    monkeypatch.setattr(stream, "source_options", lambda *_: {})
    monkeypatch.setattr(stream, "start", lambda *_: found.append(storage.list("checkpoint")))
    running.task._query(Mock(), running.catalog, once=False)
    assert found == [["2"]]
