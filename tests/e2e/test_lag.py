"""min.compaction.lag.ms: what waits, and what a change of it may not do."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from connectors.sinks import publisher as changelog
from connectors.sinks.settings import TransactionLimits
from tests.support.kafka import ToSend, consume_all, end_offsets, produce, wait_until
from tests.support.place import PATIENCE_S, Place
from tests.support.tasks import failing_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000


@pytest.fixture
def place(place: Place) -> Place:
    """The folder's own, plain."""
    return place.plain()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_young_record_waits_and_only_it(spark: SparkSession, place: Place) -> None:
    """With a lag, the output ends right before the first young record, exact to the record."""
    old_ms = now_ms() - 2 * HOUR_MS
    old = [ToSend(0, b"a", b"1", [], old_ms), ToSend(0, b"a", b"2", [], old_ms)]
    young = ToSend(0, b"a", b"3", [], now_ms())
    produce(place.bootstrap, place.topic, [*old, young, ToSend(0, b"b", b"1", [], old_ms)])
    place.once(spark, min_compaction_lag_ms=HOUR_MS)
    assert place.published()[0] == 2
    assert [record.value for record in consume_all(place.bootstrap, place.output)] == [b"2"]


def test_a_lag_ends_without_new_input(spark: SparkSession, place: Place) -> None:
    """Records are published once their lag is over, though nothing more is produced."""
    produce(place.bootstrap, place.topic, [(0, b"a", b"1", [], now_ms()), (1, b"b", b"1", [], now_ms())])
    with place.running(spark, min_compaction_lag_ms=4000):
        wait_until(lambda: ingested(place), "all is ingested", PATIENCE_S)
        wait_until(place.caught_up, "the lag is over and all is published", PATIENCE_S)
    assert place.breaches() == []


def ingested(place: Place) -> bool:
    """Whether everything in the source is in the catalog."""
    ends = {log.partition: log.end for log in place.state().logs} if place.taken_over() else {}
    return ends == end_offsets(place.bootstrap, place.topic)


def test_a_lag_raised_inside_a_fold_sent_in_parts(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold that was sent in part goes on to the end it had, whatever the lag says by then.

    A task that ends is tried once more before the life fails: so two of its three transactions are sent.
    """
    monkeypatch.setattr(changelog, "TransactionLimits", partial(TransactionLimits, transaction_bytes=320_000))
    large = [ToSend(0, f"k{number % 900}".encode(), bytes(1_000)) for number in range(1000)]
    produce(place.bootstrap, place.topic, large, **{"compression.type": "lz4"})
    with failing_tasks(spark, "publish.committed=kill"), pytest.raises(Exception, match="Python worker exited"):
        place.once(spark, publish_local_max_records=-1)
    sent = len(consume_all(place.bootstrap, place.output))
    assert 0 < sent < 900
    place.once(spark, min_compaction_lag_ms=HOUR_MS)
    assert place.caught_up()
    assert len(consume_all(place.bootstrap, place.output)) == 900
    assert place.breaches() == []
