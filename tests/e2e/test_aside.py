"""One source topic that cannot be read on: it is set aside, and the connector goes on with its others."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from connectors.errors import SourceAsideError, SourceChangedError
from connectors.kafka import gone
from connectors.runtime import connector_task
from connectors.source import aside
from tests.support.kafka import create_topic, delete_topic, produce, wait_until
from tests.support.place import Place
from tests.support.records import some_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def made_anew(place: Place, topic: str) -> None:
    """Recreates `topic` with more records than it had."""
    delete_topic(place.bootstrap, topic)
    create_topic(place.bootstrap, topic, 2, cleanup_policy="delete")
    produce(place.bootstrap, topic, some_records(9, 300))


def test_one_recreated_topic_among_several(spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found at a take-over and while running: the others are published, `run --once` ends with an error that says so.

    With no other topic left the connector is FAILED.
    """
    monkeypatch.setattr(gone, "SURE_S", 1.0)
    monkeypatch.setattr(connector_task, "TOPICS_CHECK_MS", 500)
    names = [place.topic, f"{place.topic}-b", f"{place.topic}-c"]
    for name in names[1:]:
        create_topic(place.bootstrap, name, 2, cleanup_policy="delete")
    for name in names:
        produce(place.bootstrap, name, some_records(1, 100))
    place.settings.pop("topics")
    place.settings["topics.regex"] = f"{place.topic}(-[bc])?"
    first, second = (place.plain().beside(name) for name in names[:2])
    place.once(spark)
    before = second.published()

    made_anew(place, names[1])
    produce(place.bootstrap, names[0], some_records(2, 100))
    with pytest.raises(SourceAsideError, match=rf"{names[1]} \(recreated"):
        place.once(spark)
    state = place.state()
    assert [state.topics[name].closed for name in names] == [None, aside.RECREATED, None]
    assert (second.published(), first.caught_up(), first.breaches()) == (before, True, [])

    # Where the planner hears of it before anything is read, the life goes on; else the next one does.
    with suppress(SourceAsideError), place.running(spark):
        produce(place.bootstrap, names[0], some_records(3, 100))
        wait_until(first.caught_up, "the first topic is published", 60)
        made_anew(place, names[2])
        wait_until(lambda: place.state().topics[names[2]].closed == aside.RECREATED, "the third is set aside", 60)
    produce(place.bootstrap, names[0], some_records(4, 100))
    with pytest.raises(SourceAsideError, match=rf"{names[1]} \(recreated.*{names[2]} \(recreated"):
        place.once(spark)
    assert first.caught_up()
    assert first.breaches() == []

    made_anew(place, names[0])
    with pytest.raises(SourceChangedError, match="was recreated"):
        place.once(spark)
