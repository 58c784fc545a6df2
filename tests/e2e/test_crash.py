"""A worker that dies, is fenced or is frozen: the output keeps its promises."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from connectors.errors import EXIT_FENCED, EXIT_OK
from tests.e2e.test_once import some_records
from tests.support.kafka import consume_all, end_offsets, produce, wait_until
from tests.support.place import PATIENCE_S, Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def caught_up(place: Place) -> bool:
    """Whether everything in the source is published."""
    return place.published() == end_offsets(place.bootstrap, place.topic)


@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param("ingest.after-commit", id="between ingest and publish"),
        pytest.param("publish.sent", id="in the middle of a transaction"),
        pytest.param("publish.before-commit", id="between transaction and catalog commit"),
    ],
)
def test_a_killed_worker_loses_nothing_and_repeats_nothing(spark: SparkSession, place: Place, failpoint: str) -> None:
    """Killed at any step, the next worker's output has every survivor once, in order."""
    produce(place.bootstrap, place.topic, some_records(1, 200))
    place.once(spark)
    produce(place.bootstrap, place.topic, some_records(2, 200))
    with place.process("--once", failpoints=f"{failpoint}=sleep:600000") as worker:
        worker.until_logged(f"failpoint {failpoint}")
        worker.signal_all(signal.SIGKILL)
        worker.wait()
    produce(place.bootstrap, place.topic, some_records(3, 100))
    place.once(spark)
    assert place.breaches() == []
    assert caught_up(place)


def test_a_dead_python_worker_of_spark_is_recovered_from(place: Place) -> None:
    """A publish task that dies fails the connector, which is started again by itself and goes on."""
    produce(place.bootstrap, place.topic, some_records(1, 100))
    with place.process(failpoints="publish.sent@2=kill") as worker:
        wait_until(lambda: place_started(place) and caught_up(place), "the first records are published", PATIENCE_S)
        produce(place.bootstrap, place.topic, some_records(2, 100))
        wait_until(lambda: caught_up(place), "the second records are published", PATIENCE_S)
        worker.send(signal.SIGTERM)
        assert worker.wait() == EXIT_OK
    assert place.breaches() == []


def place_started(place: Place) -> bool:
    """Whether the worker has taken over."""
    return (place.folder / "storage" / place.name / "catalog").is_dir() and place.state().epoch > 0


def test_of_two_workers_the_older_ends_with_5(place: Place) -> None:
    """A second worker takes over; the first, though idle, finds out and ends with the code for fenced."""
    produce(place.bootstrap, place.topic, some_records(1, 100))
    with place.process() as older:
        wait_until(lambda: place_started(place) and caught_up(place), "the older has published", PATIENCE_S)
        with place.process() as newer:
            assert older.wait() == EXIT_FENCED
            produce(place.bootstrap, place.topic, some_records(2, 100))
            wait_until(lambda: caught_up(place), "the newer has published", PATIENCE_S)
            newer.send(signal.SIGTERM)
            assert newer.wait() == EXIT_OK
    assert place.breaches() == []


def test_a_worker_frozen_through_a_take_over_changes_nothing_when_it_wakes(spark: SparkSession, place: Place) -> None:
    """Frozen in the middle of a transaction, it wakes up fenced: its records are never seen, and it ends with 5."""
    produce(place.bootstrap, place.topic, some_records(1, 100))
    place.once(spark)
    produce(place.bootstrap, place.topic, some_records(2, 100))
    with place.process(failpoints="publish.sent=sleep:3000") as frozen:
        frozen.until_logged("failpoint publish.sent")
        frozen.signal_all(signal.SIGSTOP)
        place.once(spark)
        produce(place.bootstrap, place.topic, some_records(3, 50))
        frozen.signal_all(signal.SIGCONT)
        assert frozen.wait() == EXIT_FENCED
    place.once(spark)
    assert place.breaches() == []
    assert caught_up(place)


def test_buckets_may_change_while_a_zombie_is_alive(spark: SparkSession, place: Place) -> None:
    """tasks.max changed by the new owner, the old one wakes up with the old transactional ids: nothing twice."""
    produce(place.bootstrap, place.topic, some_records(1, 100))
    place.once(spark, tasks_max=3)
    produce(place.bootstrap, place.topic, some_records(2, 100))
    with place.process(failpoints="publish.position=sleep:3000") as zombie:
        zombie.until_logged("failpoint publish.position")
        zombie.signal_all(signal.SIGSTOP)
        place.once(spark, tasks_max=1)
        assert place.state().buckets == 1
        produce(place.bootstrap, place.topic, some_records(3, 50))
        zombie.signal_all(signal.SIGCONT)
        assert zombie.wait() == EXIT_FENCED
    place.once(spark, tasks_max=4)
    assert place.breaches() == []
    assert caught_up(place)


def test_a_batch_that_is_planned_again_is_taken_once(spark: SparkSession, place: Place) -> None:
    """A worker killed after the catalog took a batch, before Spark knew: the next epoch begins behind it."""
    produce(place.bootstrap, place.topic, some_records(1, 150))
    with place.process("--once", failpoints="ingest.after-commit=kill") as worker:
        worker.wait()
    ends = {log.partition: log.end for log in place.state().logs}
    assert sum(ends.values()) == 150
    place.once(spark)
    assert place.breaches() == []
    assert len(consume_all(place.bootstrap, place.output)) <= 40
