"""Steps whose Spark jobs can be broken off; without Spark."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from connectors.runtime.breakable import CancellableJob

PATIENCE_S = 10.0


def breakable(work: Any, context: Mock | None = None) -> CancellableJob:
    """A step on a stand-in for Spark."""
    return CancellableJob(cast("Any", SimpleNamespace(sparkContext=context or Mock())), "step", work)


def test_its_jobs_have_a_group_which_is_cancelled_until_it_has_ended() -> None:
    """A job that begins just after the first cancelling is cancelled by the next."""
    context, cancelled = Mock(), threading.Semaphore(0)
    context.cancelJobGroup.side_effect = lambda _: cancelled.release()

    def jobs(ending: threading.Event) -> None:
        for _ in range(2):  # two jobs, each broken off
            assert cancelled.acquire(timeout=PATIENCE_S)
        raise RuntimeError("Job cancelled")

    step = breakable(jobs, context)
    step.start()
    step.break_off()
    assert not step.is_alive()
    assert context.setJobGroup.call_args.args[0] == "keyfold-step"
    assert {call.args for call in context.cancelJobGroup.call_args_list} == {("keyfold-step",)}
    assert isinstance(step.failure, RuntimeError)


def test_a_step_that_is_asked_to_end_is_not_cancelled() -> None:
    """It looks at its event between two turns."""
    context = Mock()
    step = breakable(lambda ending: ending.wait(PATIENCE_S), context)
    step.start()
    step.end()
    step.join(PATIENCE_S)
    assert (step.is_alive(), step.failure, context.cancelJobGroup.called) == (False, None, False)


@pytest.mark.parametrize("started", [False, True])
def test_a_jvm_that_has_ended_hinders_no_end(*, started: bool) -> None:
    """Cancelling fails there, and so does the step by itself; one that never began has nothing to end."""
    context, asked = Mock(), threading.Event()

    def refuse(_: str) -> None:
        asked.set()
        raise ConnectionRefusedError("py4j")

    def work(_: threading.Event) -> None:
        assert asked.wait(PATIENCE_S)
        raise ConnectionRefusedError("py4j")

    context.cancelJobGroup.side_effect = refuse
    step = breakable(work, context)
    if started:
        step.start()
    step.break_off()
    assert (step.is_alive(), step.failure is not None) == (False, started)
