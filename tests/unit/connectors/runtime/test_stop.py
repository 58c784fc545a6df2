"""How a connector is stopped, at once or after the fold that runs, and how Spark jobs are cancelled; without Spark."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from connectors.runtime.stop import CancellableJob, RunStops, StopToken

TIMEOUT_S = 10.0


@pytest.mark.parametrize(
    ("asked", "drain"),
    [((True,), True), ((False,), False), ((True, True), True), ((True, False), False), ((False, True), False)],
)
def test_a_stop_without_drain_wins(asked: tuple[bool, ...], drain: bool) -> None:
    """A changed file waits for a running fold (SIGHUP); a worker that is told to end (SIGTERM) does not."""
    stop = StopToken()
    for one in asked:
        stop.stop(drain=one)
    assert (stop.is_set(), stop.drain) == (True, drain)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_restart_ends_the_run_and_another_follows(*, stopped: bool) -> None:
    """Not where the connector is stopped as well: then the next run would end before it began."""
    stops = RunStops()
    run = stops.begin_run()
    stops.restart(cancel_at=5.0)
    if stopped:
        stops.stop(drain=True)
    assert (run.is_set(), run.cancel_at, stops.restarting) == (True, 5.0, not stopped)
    assert stops.begin_run().is_set() is stopped


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
    woken, stopped, restarted = StopToken(), StopToken(), RunStops()
    woken.wake()
    stopped.stop()
    run = restarted.begin_run()
    restarted.restart(cancel_at=1.0)
    assert [(one.is_set(), one.woken.is_set()) for one in (StopToken(), woken, stopped, run)] == [
        (False, False),
        (False, True),
        (True, True),
        (True, True),
    ]
