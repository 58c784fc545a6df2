"""A worker that dies, is fenced or is frozen: the output keeps its promises."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from connectors.errors import EXIT_FENCED
from tests.support.kafka import produce, wait_until
from tests.support.place import PATIENCE_S, Place
from tests.support.records import some_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(420)
KILLED_AT = (
    "ingest.after-commit",  # between ingest and publish
    "publish.sent",  # in the middle of a transaction
    "publish.before-commit",  # between transaction and catalog commit
)


@pytest.fixture
def place(place: Place) -> Place:
    """The folder's own, plain."""
    return place.plain()


def test_a_worker_killed_again_and_again_loses_nothing_and_repeats_nothing(spark: SparkSession, place: Place) -> None:
    """Killed at one step after the other, each worker goes on where the last one was, and sends every survivor once."""
    for seed, failpoint in enumerate(KILLED_AT):
        produce(place.bootstrap, place.topic, some_records(seed, 200))
        with place.process("--once", failpoints=f"{failpoint}=sleep:600000") as worker:
            worker.until_logged(f"failpoint {failpoint}")
            worker.signal_all(signal.SIGKILL)
            worker.wait()
        assert not place.caught_up()
    produce(place.bootstrap, place.topic, some_records(len(KILLED_AT), 100))
    place.once(spark)
    assert place.breaches() == []
    assert place.caught_up()


def test_of_two_workers_the_older_ends_with_5(spark: SparkSession, place: Place) -> None:
    """A worker outlives a publish task that dies; idle, it finds out that another took over, and ends as fenced."""
    produce(place.bootstrap, place.topic, some_records(1, 100))
    place.write(publish_local_max_records=-1, restart_backoff_initial_ms=100)
    with place.process(failpoints="publish.sent@2=kill") as older:
        wait_until(place.caught_up, "the first records are published", PATIENCE_S)
        produce(place.bootstrap, place.topic, some_records(2, 100))
        wait_until(place.caught_up, "the second records are published", PATIENCE_S)
        older.until_logged("failpoint publish.sent: kill")
        place.once(spark)
        assert older.wait() == EXIT_FENCED
    produce(place.bootstrap, place.topic, some_records(3, 100))
    place.once(spark)
    assert place.breaches() == []
    assert place.caught_up()


def test_a_worker_frozen_through_a_take_over_changes_nothing_when_it_wakes(spark: SparkSession, place: Place) -> None:
    """Frozen inside a transaction, tasks.max changed meanwhile: it wakes up fenced, sends nothing, ends with 5."""
    produce(place.bootstrap, place.topic, some_records(1, 100))
    place.write(tasks_max=3)
    with place.process(failpoints="publish.sent=sleep:3000") as zombie:
        zombie.until_logged("failpoint publish.sent")
        zombie.signal_all(signal.SIGSTOP)
        assert place.state().buckets == 3
        place.once(spark, tasks_max=1)
        assert place.state().buckets == 1
        produce(place.bootstrap, place.topic, some_records(3, 50))
        zombie.signal_all(signal.SIGCONT)
        assert zombie.wait() == EXIT_FENCED
    place.once(spark, tasks_max=4)
    assert place.breaches() == []
    assert place.caught_up()
