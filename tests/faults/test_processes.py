"""Processes of Spark's that die under a worker, two workers, and another number of buckets in between."""

from __future__ import annotations

import signal
from contextlib import suppress

import psutil
import pytest

from connectors.errors import EXIT_FENCED
from tests.faults.cases import Cases
from tests.faults.scenario import CLUSTER, CLUSTER_S, TASKS
from tests.faults.step_settings import settings
from tests.faults.worker_process import TIMEOUT_S
from tests.support.deployment import signal_each
from tests.support.kafka import wait_until

EXECUTOR = "CoarseGrainedExecutorBackend"
HELD = "sleep:5000"
pytestmark = pytest.mark.timeout(600)


def test_spark_daemon_of_python_workers_killed(cases: Cases) -> None:
    """The process that forks Spark's Python workers dies, and they with it: the same worker goes on."""
    with cases.case("SIGKILL of pyspark.daemon", "publish.sent", TASKS) as case:
        worker = case.scenario.meet("publish.sent", HELD)
        daemons = worker.processes("pyspark.daemon")
        assert daemons
        case.strikes()
        signal_each(daemons, signal.SIGKILL)
        case.recovers()
        assert worker.alive, worker.tail()
        case.outcome = "same worker"
        assert case.violations() == []


@pytest.mark.parametrize("step", ["ingest.write", "publish.sent", "clean.before-commit"])
def test_the_jvm_killed(cases: Cases, step: str) -> None:
    """Spark's JVM dies (no memory, say): the worker ends by itself with an error, for a service manager to start it."""
    with cases.case("SIGKILL of Spark's JVM", step, settings(step, tasks=True)) as case:
        worker = case.scenario.meet(step, HELD)
        case.strikes()
        signal_each(worker.processes("java")[:1], signal.SIGKILL)
        code = worker.wait(TIMEOUT_S)
        assert code not in (0, EXIT_FENCED), worker.tail()
        case.outcome = f"exit {code}"
        case.scenario.start()
        case.recovers()
        assert case.violations() == []


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("step", ["ingest.write", "publish.sent", "publish.committed"])
def test_an_executor_killed(cases: Cases, step: str) -> None:
    """One of two executors dies in a task: Spark or the connector's restart does the task again, in the same worker."""
    with cases.case("SIGKILL of an executor", step, CLUSTER) as case:
        worker = case.scenario.meet(step, HELD)
        executors = worker.processes(EXECUTOR)
        case.strikes()
        signal_each(executors[:1], signal.SIGKILL)
        case.recovers(CLUSTER_S)
        assert worker.alive, worker.tail()
        case.outcome = "same worker"
        assert case.violations() == []


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("step", ["publish.position", "publish.offsets", "ingest.write"])
def test_an_executor_that_outlives_its_worker(cases: Cases, step: str) -> None:
    """Executors frozen in a task, their driver dead, another worker in its place: they wake up, and change nothing."""
    with cases.case("zombie executor", step, CLUSTER) as case:
        worker = case.scenario.meet(step, HELD)
        zombies = [each for one in worker.processes(EXECUTOR) for each in (one, *one.children(recursive=True))]
        signal_each(zombies, signal.SIGSTOP)
        case.strikes()
        others = [one for one in worker.processes("") if one not in zombies]
        signal_each([psutil.Process(worker.process.pid), *others], signal.SIGKILL)
        worker.wait(TIMEOUT_S)
        case.scenario.start()
        case.recovers(CLUSTER_S)
        signal_each(zombies, signal.SIGCONT)
        wait_until(lambda: not any(_lives(one) for one in zombies), "the zombies end", TIMEOUT_S)
        assert case.violations() == []


def test_two_workers_at_once(cases: Cases) -> None:
    """A second worker of the same connector takes over; the first ends with 5, in the middle of its work."""
    with cases.case("second worker", "any time") as case:
        older = case.scenario.running()
        case.strikes()
        case.scenario.start()
        assert older.wait(TIMEOUT_S) == EXIT_FENCED, older.tail()
        case.recovers()
        case.outcome = "the older ends with 5"
        assert case.violations() == []


@pytest.mark.parametrize("step", ["publish.sent", "takeover.fence"])
def test_tasks_max_changed_between_two_lives(cases: Cases, step: str) -> None:
    """Killed with one number of buckets and started with another, and back: nothing twice under two ids."""
    with cases.case("tasks.max 2, 5, 1", step) as case:
        scenario = case.scenario
        scenario.running()
        for buckets in (5, 1, 2):
            worker = scenario.worker
            assert worker is not None
            if step == "takeover.fence":
                worker.kill()
                scenario.deployment.write(tasks_max=buckets)
                scenario.control.arm(step, "sleep:600000")
                worker = scenario.start()
                worker.until_met(step)
            else:
                worker = scenario.meet(step, "sleep:600000")
                scenario.deployment.write(tasks_max=buckets)
            case.strikes()
            worker.kill()
            scenario.start()
            case.recovers()
            assert scenario.deployment.state().buckets == buckets
        assert case.violations() == []


def _lives(process: psutil.Process) -> bool:
    """Whether it runs; one that has ended and was not waited for does not."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
