"""One source topic that cannot be read on: it is set aside, and the connector goes on with its others."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from connectors.errors import EXIT_FAILED, SourceChangedError, SourceClosedError
from connectors.runtime import reading_thread
from connectors.source.source_errors import RECREATED
from tests.support.deployment import Deployment
from tests.support.kafka import create_topic, delete_topic, produce, wait_until
from tests.support.records import random_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


KILLED_AT = (
    "ingest.before-commit",  # the topic is closed, and nothing of the batch is ingested
    "ingest.after-commit",  # the others of the batch are ingested
    "publish.sent",  # the topic is open again, and the others are in a transaction
)


def made_anew(deployment: Deployment, topic: str) -> None:
    """Recreates `topic` with more records than it had."""
    delete_topic(deployment.bootstrap, topic)
    create_topic(deployment.bootstrap, topic, 2, cleanup_policy="delete")
    produce(deployment.bootstrap, topic, random_records(9, 300))


@pytest.mark.usefixtures("soon_gone")
def test_one_recreated_topic_among_several(
    spark: SparkSession, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found at a take-over and while running: the others are published, `run --once` ends with an error that says so.

    With no other topic left the connector is FAILED.
    """
    monkeypatch.setattr(reading_thread, "TOPICS_CHECK_MS", 500)
    names = [deployment.topic, f"{deployment.topic}-b", f"{deployment.topic}-c"]
    for name in names[1:]:
        create_topic(deployment.bootstrap, name, 2, cleanup_policy="delete")
    for name in names:
        produce(deployment.bootstrap, name, random_records(1, 100))
    deployment.settings.pop("topics")
    deployment.settings["topics.regex"] = f"{deployment.topic}(-[bc])?"
    first, second = (deployment.publishing_only().for_topic(name) for name in names[:2])
    deployment.run_once(spark)
    before = second.published()

    made_anew(deployment, names[1])
    produce(deployment.bootstrap, names[0], random_records(2, 100))
    with pytest.raises(SourceClosedError, match=rf"{names[1]} \(recreated"):
        deployment.run_once(spark)
    state = deployment.state()
    assert [state.topics[name].closed for name in names] == [None, RECREATED, None]
    assert (second.published(), first.caught_up(), first.violations()) == (before, True, [])

    # Where the planner hears of it before anything is read, the life goes on; else the next one does.
    with suppress(SourceClosedError), deployment.running(spark):
        produce(deployment.bootstrap, names[0], random_records(3, 100))
        wait_until(first.caught_up, "the first topic is published", 60)
        made_anew(deployment, names[2])
        wait_until(lambda: deployment.state().topics[names[2]].closed == RECREATED, "the third is set aside", 60)
    produce(deployment.bootstrap, names[0], random_records(4, 100))
    with pytest.raises(SourceClosedError, match=rf"{names[1]} \(recreated.*{names[2]} \(recreated"):
        deployment.run_once(spark)
    assert first.caught_up()
    assert first.violations() == []

    made_anew(deployment, names[0])
    with pytest.raises(SourceChangedError, match="was recreated"):
        deployment.run_once(spark)


def two_topics(deployment: Deployment) -> tuple[Deployment, Deployment]:
    """Makes another topic, and has a bad record set its topic alone aside; returns the deployment of each topic."""
    other = f"{deployment.topic}-b"
    create_topic(deployment.bootstrap, other, 2, cleanup_policy="delete")
    deployment.publishing_only().settings |= {"topics": f"{deployment.topic},{other}", "errors.scope": "topic"}
    return deployment, deployment.for_topic(other)


def is_aside(deployment: Deployment, topic: str) -> bool:
    """Returns whether `topic` is set aside for a bad record."""
    state = deployment.state() if deployment.taken_over() else None
    return state is not None and topic in state.topics and state.topics[topic].is_rejected


def test_a_bad_record_sets_its_topic_alone_aside(spark: SparkSession, deployment: Deployment) -> None:
    """The others are read and published on in the same run; the next start reads it on, once bad records are let go."""
    sound, bad = two_topics(deployment)
    produce(sound.bootstrap, sound.topic, random_records(1, 100))
    produce(bad.bootstrap, bad.topic, random_records(2, 100))
    with deployment.running(spark):
        wait_until(lambda: sound.caught_up() and bad.caught_up(), "both are published", 60)
        before = bad.published()
        produce(bad.bootstrap, bad.topic, [(0, b"k", b"1"), (0, None, b"keyless"), (0, b"k", b"2")])
        wait_until(lambda: is_aside(deployment, bad.topic), "the topic is set aside", 60)
        produce(bad.bootstrap, bad.topic, random_records(3, 50))
        produce(sound.bootstrap, sound.topic, random_records(4, 100))
        wait_until(sound.caught_up, "the other topic goes on", 60)
    assert (bad.published(), sound.violations()) == (before, [])
    with pytest.raises(SourceClosedError, match=rf"{bad.topic} \(record rejected.*partition 0, offset .*null key"):
        deployment.run_once(spark)
    assert bad.published() == before
    deployment.run_once(spark, errors_tolerance="all")
    assert (bad.caught_up(), bad.violations(), sound.violations()) == (True, [], [])


@pytest.mark.long
@pytest.mark.timeout(420)
def test_a_worker_killed_after_it_set_a_topic_aside_loses_nothing(spark: SparkSession, deployment: Deployment) -> None:
    """Before the others of its batch are ingested: test_a_bad_record_sets_its_topic_alone_aside, and a kill."""
    sound, bad = two_topics(deployment)
    produce(sound.bootstrap, sound.topic, random_records(1, 100))
    produce(bad.bootstrap, bad.topic, [(0, b"k", b"1"), (0, None, b"keyless"), (0, b"k", b"2")])
    for point in KILLED_AT:
        with deployment.process("--once", failpoints=f"{point}=sleep:600000") as worker:
            worker.until_logged(f"failpoint {point}")
            worker.signal_all(signal.SIGKILL)
            worker.wait()
        # What was ingested before the second kill is published first, as the third worker starts: it reads nothing yet.
        assert is_aside(deployment, bad.topic) is (point != "publish.sent")
        produce(sound.bootstrap, sound.topic, random_records(2, 50))
    with deployment.process("--once") as worker:
        assert worker.wait() == EXIT_FAILED
    assert (sound.caught_up(), sound.violations(), set(bad.published().values())) == (True, [], {0})
    deployment.run_once(spark, errors_tolerance="all")
    assert (bad.caught_up(), bad.violations(), sound.violations()) == (True, [], [])
