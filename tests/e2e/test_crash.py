"""A worker that dies, is fenced or is frozen: the output keeps its promises."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from connectors.errors import EXIT_FENCED
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment
from tests.support.kafka import produce, wait_until
from tests.support.records import random_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(420)
KILLED_AT = (
    "ingest.after-commit",  # between ingest and publish
    "publish.sent",  # in the middle of a transaction
    "publish.before-commit",  # between transaction and catalog commit
)


@pytest.fixture
def deployment(deployment: Deployment) -> Deployment:
    """The folder's own, plain."""
    return deployment.publishing_only()


@pytest.mark.long
def test_a_worker_killed_again_and_again_loses_nothing_and_repeats_nothing(
    spark: SparkSession, deployment: Deployment
) -> None:
    """Killed at one step after the other, each worker goes on where the last one was, and sends every survivor once."""
    for seed, failpoint in enumerate(KILLED_AT):
        produce(deployment.bootstrap, deployment.topic, random_records(seed, 200))
        with deployment.process("--once", failpoints=f"{failpoint}=sleep:600000") as worker:
            worker.until_logged(f"failpoint {failpoint}")
            worker.signal_all(signal.SIGKILL)
            worker.wait()
        assert not deployment.caught_up()
    produce(deployment.bootstrap, deployment.topic, random_records(len(KILLED_AT), 100))
    deployment.run_once(spark)
    assert deployment.violations() == []
    assert deployment.caught_up()


@pytest.mark.long  # the next test has an older one that is fenced
def test_of_two_workers_the_older_ends_with_5(spark: SparkSession, deployment: Deployment) -> None:
    """A worker outlives a publish task that dies; idle, it finds out that another took over, and ends as fenced."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, 100))
    deployment.write(publish_local_max_records=-1, restart_backoff_initial_ms=100)
    with deployment.process(failpoints="publish.sent@2=kill") as older:
        wait_until(deployment.caught_up, "the first records are published", PROCESS_TIMEOUT_S)
        produce(deployment.bootstrap, deployment.topic, random_records(2, 100))
        wait_until(deployment.caught_up, "the second records are published", PROCESS_TIMEOUT_S)
        older.until_logged("failpoint publish.sent: kill")
        deployment.run_once(spark)
        assert older.wait() == EXIT_FENCED
    produce(deployment.bootstrap, deployment.topic, random_records(3, 100))
    deployment.run_once(spark)
    assert deployment.violations() == []
    assert deployment.caught_up()


def test_a_worker_frozen_through_a_take_over_changes_nothing_when_it_wakes(
    spark: SparkSession, deployment: Deployment
) -> None:
    """Frozen inside a transaction, tasks.max changed meanwhile: it wakes up fenced, sends nothing, ends with 5."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, 100))
    deployment.write(tasks_max=3)
    with deployment.process(failpoints="publish.sent=sleep:3000") as zombie:
        zombie.until_logged("failpoint publish.sent")
        zombie.signal_all(signal.SIGSTOP)
        assert deployment.state().buckets == 3
        deployment.run_once(spark, tasks_max=1)
        assert deployment.state().buckets == 1
        produce(deployment.bootstrap, deployment.topic, random_records(3, 50))
        zombie.signal_all(signal.SIGCONT)
        assert zombie.wait() == EXIT_FENCED
    deployment.run_once(spark, tasks_max=4)
    assert deployment.violations() == []
    assert deployment.caught_up()
