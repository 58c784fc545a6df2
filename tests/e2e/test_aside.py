"""One source topic that cannot be read on: it is set aside, and the connector goes on with its others."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from connectors.errors import SourceChangedError, SourceClosedError
from connectors.runtime import reading_thread
from connectors.source.source_errors import RECREATED
from tests.support.deployment import Deployment
from tests.support.kafka import create_topic, delete_topic, produce, wait_until
from tests.support.records import random_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
