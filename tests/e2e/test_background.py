"""The cleaner of a running connector: by itself when something is due, and when a command asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from connectors.config.files import load_worker
from connectors.runtime.commands import fold_logs, release_log, take_snapshot
from tests.support.kafka import end_offsets, produce, wait_until
from tests.support.place import Place
from tests.support.records import some_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def folded(place: Place) -> bool:
    """Whether every log of the source is one base run up to the source's end."""
    ends = end_offsets(place.bootstrap, place.topic)
    return {log.partition: log.clean_end for log in place.state().logs} == ends


@pytest.mark.timeout(300)
def test_a_running_connector_cleans_by_itself_and_on_command(spark: SparkSession, place: Place) -> None:
    """What is dirty enough is folded in the background; what is not, once `clean` asks the live worker for it."""
    place.worker |= {"log.cleaner.initial.delay.ms": 0, "log.cleaner.backoff.ms": 100}
    produce(place.bootstrap, place.topic, some_records(1, 200))
    with place.running(spark):
        wait_until(lambda: folded(place), "the backlog is folded in the background", 90)
        dirty = [(0, b"one more", b"x"), (1, b"one more", b"x")]
        produce(place.bootstrap, place.topic, dirty)
        ends = end_offsets(place.bootstrap, place.topic)
        wait_until(lambda: place.published() == ends, "they are published", 60)
        assert not folded(place)
        worker, connector = load_worker(place.folder / "worker.json"), place.config()
        done = fold_logs(worker, connector, place.topic, 1)
        assert [(one.partition, one.end) for one in done] == [(1, ends[1])]
        assert done[0].records_before == done[0].records
        assert not release_log(worker, connector, place.topic, 0)
        (taken,) = take_snapshot(worker, connector)
        assert folded(place)
        assert taken.records == sum(log.base.records - log.base.tombstones for log in place.state().logs if log.base)
    assert place.breaches() == []
