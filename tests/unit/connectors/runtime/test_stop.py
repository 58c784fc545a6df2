"""How a connector is stopped, at once or after the fold that runs, and how Spark jobs are cancelled; without Spark."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from connectors.runtime.stop import Stop
from connectors.spark.cancellable_job import CancellableJob

TIMEOUT_S = 30.0


@pytest.mark.parametrize(
    ("asked", "drop_at_ms"),
    [((None,), None), ((5,), 5), ((None, None), None), ((None, 5), 5), ((5, None), 5), ((5, 3), 3)],
)
def test_the_stronger_stop_wins(asked: tuple[int | None, ...], drop_at_ms: int | None) -> None:
    """A changed file waits for a running fold (SIGHUP); a worker that is told to end (SIGTERM) does not."""
    stop = Stop()
    assert (stop.is_set(), stop.finishes, stop.drops) == (False, False, False)
    for at in asked:
        if at is None:
            stop.finish()
        else:
            stop.drop(at)
    assert (stop.is_set(), stop.finishes, stop.drops) == (True, drop_at_ms is None, drop_at_ms is not None)
    assert stop.drops_at(4) is (drop_at_ms == 3)


def cancellable_job(work: Any, context: Mock | None = None) -> CancellableJob:
    """A job on a stand-in for Spark."""
    return CancellableJob(cast("Any", SimpleNamespace(sparkContext=context or Mock())), "step", work)


def test_its_jobs_have_a_group_which_is_cancelled_until_it_has_ended() -> None:
    """A job that begins just after the first cancelling is cancelled by the next."""
    context, cancelled = Mock(), threading.Semaphore(0)
    context.cancelJobGroup.side_effect = lambda _: cancelled.release()

    def jobs(stopped: threading.Event) -> None:
        for _ in range(2):  # two jobs, each cancelled
            assert cancelled.acquire(timeout=TIMEOUT_S)
        raise RuntimeError("Job cancelled")

    step = cancellable_job(jobs, context)
    step.start()
    step.cancel()
    assert not step.is_alive()
    assert context.setJobGroup.call_args.args[0] == "keyfold-step"
    assert {call.args for call in context.cancelJobGroup.call_args_list} == {("keyfold-step",)}
    assert step.failure is None  # it was stopped before it failed


def test_a_job_that_is_stopped_is_not_cancelled() -> None:
    """It looks at its event between two turns."""
    context = Mock()
    step = cancellable_job(lambda stopped: stopped.wait(TIMEOUT_S), context)
    step.start()
    step.stop()
    step.join(TIMEOUT_S)
    assert (step.is_alive(), step.failure, context.cancelJobGroup.called) == (False, None, False)


@pytest.mark.parametrize("started", [False, True])
def test_a_jvm_that_has_ended_hinders_no_end(*, started: bool) -> None:
    """Cancelling fails there, and so does the step by itself; one that never began has nothing to end."""
    context, asked = Mock(), threading.Event()

    def refuse(_: str) -> None:
        asked.set()
        raise ConnectionRefusedError("py4j")

    def work(_: threading.Event) -> None:
        assert asked.wait(TIMEOUT_S)
        raise ConnectionRefusedError("py4j")

    context.cancelJobGroup.side_effect = refuse
    step = cancellable_job(work, context)
    if started:
        step.start()
    step.cancel()
    assert (step.is_alive(), step.failure, asked.is_set()) == (False, None, started)


@pytest.mark.parametrize("fails", [False, True])
def test_who_waits_for_a_job_is_told_when_it_is_over(*, fails: bool) -> None:
    """However it ended: by then it counts as ended, and its failure is known."""
    found: list[tuple[bool, bool]] = []

    def work(_stopped: threading.Event) -> None:
        if fails:
            raise ValueError("It failed.")

    step = cancellable_job(work)
    step.when_over(lambda: found.append((step.is_alive(), step.failure is not None)))
    step.start()
    step.join(TIMEOUT_S)
    assert found == [(False, fails)]


def test_a_stop_wakes_and_to_be_woken_stops_nothing() -> None:
    """Who watches a connector waits for one event, whatever happens to it."""
    woken, finished, dropped = Stop(), Stop(), Stop()
    woken.wake()
    finished.finish()
    dropped.drop(1)
    assert [(stop.is_set(), stop.woken.is_set()) for stop in (Stop(), woken, finished, dropped)] == [
        (False, False),
        (False, True),
        (True, True),
        (True, True),
    ]
