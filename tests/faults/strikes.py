"""Faults that are tried at every step: of one connector alone, and of one among many; a test judges them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from connectors.errors import EXIT_FENCED
from tests.faults.cases import CaseOf, S
from tests.faults.scenario import Scenario
from tests.faults.step_settings import AT_START, IN_A_CHANGE, IN_TASKS
from tests.faults.worker_process import TIMEOUT_S, WorkerProcess
from tests.support.kafka import wait_until

ASLEEP = "sleep:600000"
NAP = "sleep:2000"
_BREAKS_A_LIFE = "ingest.before-commit"


def stands_at(scenario: Scenario, step: str, action: str) -> WorkerProcess:
    """Returns a worker of which a process is at `step` and does `action` there: a new one for steps of a start."""
    worker = scenario.running()
    if step in AT_START:
        worker.kill()
    scenario.arm(step, action)
    if step in AT_START:
        worker = scenario.start()
    if step in IN_A_CHANGE:
        scenario.ask_resync()
    worker.until_met(step)
    return worker


def comes_to(scenario: Scenario, step: str, action: str) -> WorkerProcess:
    """Returns the worker that runs, of which a process is at `step` and does `action` there.

    For steps of a start that is in the connector's next life, while those beside it run.
    """
    worker = scenario.worker
    assert worker is not None
    scenario.arm(step, action)
    if step in AT_START:
        scenario.arm(_BREAKS_A_LIFE, "error")
    if step in IN_A_CHANGE:
        scenario.ask_resync()
    worker.until_met(step)
    return worker


def frozen_at(scenario: Scenario, step: str) -> WorkerProcess:
    """Returns a worker that stands at `step`, all of its processes stopped."""
    sleeper = stands_at(scenario, step, NAP)
    sleeper.signal_all(signal.SIGSTOP)
    return sleeper


def kill_all(case: CaseOf[S], step: str) -> None:
    """Kills all processes of the worker at `step`; the next worker goes on."""
    worker = stands_at(case.scenario, step, ASLEEP)
    case.strikes()
    worker.kill()
    case.scenario.start()
    case.recovers()
    _resync_again(case, step)


def kill_one(case: CaseOf[S], step: str) -> None:
    """Kills the process that is at `step`: a task's, and the same worker goes on, or the driver, and the next does."""
    scenario = case.scenario
    worker = stands_at(scenario, step, "kill")
    case.strikes()
    if step in IN_TASKS:
        case.recovers()
        assert worker.alive, worker.tail()
        case.outcome = "same worker"
    else:
        worker.wait()
        scenario.start()
        case.recovers()
        wait_until(lambda: _is_gone(worker), "the processes of the dead driver end")
        _resync_again(case, step)


def fail_once(case: CaseOf[S], step: str) -> None:
    """Makes `step` fail once; the same worker goes on."""
    worker = case.scenario.running()
    comes_to(case.scenario, step, "error")
    case.strikes()
    case.recovers()
    assert worker.alive, worker.tail()
    _resync_again(case, step)


def freeze_through_a_take_over(case: CaseOf[S], step: str) -> None:
    """Freezes the worker at `step` until another publishes; then it goes on, changes nothing and ends with 5."""
    _wakes_up_fenced(case, frozen_at(case.scenario, step))


def freeze_all_through_a_take_over(case: CaseOf[S], step: str) -> None:
    """The same of a worker that has taken over the others of its connectors.

    What it has not come to when it freezes it takes over when it wakes up, as any worker that is started later.
    """
    case.scenario.running()
    sleeper = comes_to(case.scenario, step, NAP)
    sleeper.signal_all(signal.SIGSTOP)
    _wakes_up_fenced(case, sleeper)


def _resync_again(case: CaseOf[S], step: str) -> None:
    """Where `step` is one of a change of offsets: what was broken off there is asked for again, and done."""
    if step in IN_A_CHANGE:
        case.scenario.resync()


def _wakes_up_fenced(case: CaseOf[S], sleeper: WorkerProcess) -> None:
    case.strikes()
    case.scenario.start()
    case.recovers()
    sleeper.signal_all(signal.SIGCONT)
    assert sleeper.wait(TIMEOUT_S) == EXIT_FENCED, sleeper.tail()
    case.outcome = "exit 5"


def _is_gone(worker: WorkerProcess) -> bool:
    """Whether no process of its group is left."""
    with suppress(ProcessLookupError):
        os.killpg(worker.process.pid, 0)
        return False
    return True
