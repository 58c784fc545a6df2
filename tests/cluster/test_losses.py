"""What a cluster loses in the middle of a run: executors, the master, time. Nothing is lost, nothing comes twice."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil
import pytest

from connectors.errors import EXIT_OK
from tests.cluster.test_run import POINTS, RECORDS, RUN_S, assert_whole, finish
from tests.support.deployment import Deployment, Process, signal_each
from tests.support.kafka import produce, wait_until
from tests.support.records import random_records
from tests.support.spark_cluster import SparkCluster, with_children

PAUSE_MS = 4000
FROZEN_S = 8.0


@contextmanager
def in_the_midst(
    cluster: SparkCluster, deployment: Deployment, step: str, seed: int, *options: str
) -> Iterator[tuple[Process, Sequence[psutil.Process]]]:
    """Runs a worker over new records during the block, in which a task is at `step`; gives it and its executors.

    Each task stays there for PAUSE_MS.
    """
    produce(deployment.bootstrap, deployment.topic, random_records(seed, RECORDS))
    deployment.worker[POINTS] = f"{step}=sleep:{PAUSE_MS}"
    said = f"failpoint {step}"
    before = cluster.executor_logs().count(said)
    with deployment.process(*options) as worker:

        def there() -> bool:
            assert worker.process.poll() is None, worker.tail()
            return cluster.executor_logs().count(said) > before

        wait_until(there, "a task is at the step", RUN_S)
        yield worker, cluster.executors()


@pytest.mark.parametrize("step", ["ingest.write", "publish.sent"])
@pytest.mark.parametrize("which", ["one", "all"])
def test_executors_die(cluster: SparkCluster, deployment: Deployment, step: str, which: str) -> None:
    """One, or all at once, while tasks have written files or have a transaction open: others do it again."""
    with in_the_midst(cluster, deployment, step, 5, "--once") as (worker, executors):
        dying = executors if which == "all" else executors[:1]
        assert signal_each(dying, signal.SIGKILL) > 0
        assert worker.wait(RUN_S) == EXIT_OK, worker.tail()
    assert_whole(deployment)


def test_the_master_dies_and_comes_back(cluster: SparkCluster, deployment: Deployment) -> None:
    """What runs goes on without it; the next master knows workers and application, and gives the next run executors."""
    with in_the_midst(cluster, deployment, "publish.sent", 6, "--once") as (worker, _):
        cluster.kill_master()
        cluster.start_master()
        assert worker.wait(RUN_S) == EXIT_OK, worker.tail()
    assert_whole(deployment)
    wait_until(lambda: cluster.log("master").count("Worker has been re-registered") >= 2, "its workers are back", RUN_S)
    produce(deployment.bootstrap, deployment.topic, random_records(7, RECORDS))
    finish(deployment)


def test_an_executor_is_slow(cluster: SparkCluster, deployment: Deployment) -> None:
    """Frozen for seconds with a transaction open, and still itself when it wakes up: its task ends as it would have."""
    with in_the_midst(cluster, deployment, "publish.sent", 8, "--once") as (worker, executors):
        frozen = with_children(executors[:1])
        signal_each(frozen, signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            worker.process.wait(FROZEN_S)
        signal_each(frozen, signal.SIGCONT)
        assert worker.wait(RUN_S) == EXIT_OK, worker.tail()
    assert_whole(deployment)


def test_an_executor_that_was_given_up_wakes_up(cluster: SparkCluster, deployment: Deployment) -> None:
    """Frozen with a transaction open until another has done its task: awake, while Spark lets it, it adds nothing."""
    deployment.worker |= {
        "spark.executor.heartbeatInterval": "1s",
        "spark.network.timeoutInterval": "1s",
        "spark.network.timeout": "6s",
    }
    with in_the_midst(cluster, deployment, "publish.sent", 9) as (worker, executors):
        frozen = with_children(executors[:1])
        signal_each(frozen, signal.SIGSTOP)
        wait_until(deployment.caught_up, "another executor has published all of it", RUN_S)
        assert "Executor heartbeat timed out" in worker.printed()
        signal_each(frozen, signal.SIGCONT)
        produce(deployment.bootstrap, deployment.topic, random_records(10, RECORDS))
        wait_until(deployment.caught_up, "what came later is published", RUN_S)
        worker.send(signal.SIGTERM)
        assert worker.wait(RUN_S) == EXIT_OK, worker.tail()
    finish(deployment)


def test_executors_come_and_go(cluster: SparkCluster, deployment: Deployment) -> None:
    """With dynamic allocation an idle worker holds no executor, and has some again when there is something to do."""
    deployment.worker |= {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "3s",
        "spark.dynamicAllocation.cachedExecutorIdleTimeout": "3s",
    }
    produce(deployment.bootstrap, deployment.topic, random_records(11, RECORDS))
    with deployment.process() as worker:
        wait_until(deployment.caught_up, "it is published", RUN_S)
        wait_until(lambda: not cluster.executors(), "no executor is held", RUN_S)
        produce(deployment.bootstrap, deployment.topic, random_records(12, RECORDS))
        wait_until(deployment.caught_up, "what came later is published", RUN_S)
        assert cluster.executors()
        worker.send(signal.SIGTERM)
        assert worker.wait(RUN_S) == EXIT_OK, worker.tail()
    finish(deployment)
