"""`run --once`: a topic goes in, a compacted topic and a Parquet snapshot come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compactor.errors import RejectedRecordError
from tests.support.kafka import add_partitions, consume_all, produce, produce_transaction
from tests.support.place import Place
from tests.support.promises import published
from tests.support.records import BASE_MS, living, snapshot, some_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_output_and_snapshot_hold_the_last_record_of_every_key(spark: SparkSession, place: Place) -> None:
    """After --once the output keeps every promise, and the snapshot is the last record of every living key."""
    produce(place.bootstrap, place.topic, some_records(1, 500))
    place.once(spark)
    assert place.breaches() == []
    manifest, table = snapshot(place)
    assert table == living(place)
    assert manifest["source_offsets"] == {str(key): value for key, value in place.published().items()}


def test_going_on_publishes_only_what_is_new(spark: SparkSession, place: Place) -> None:
    """A second --once sends what came since, in the same order, and one with nothing new sends nothing."""
    produce(place.bootstrap, place.topic, some_records(1, 200))
    place.once(spark)
    before = len(consume_all(place.bootstrap, place.output))
    place.once(spark)
    assert len(consume_all(place.bootstrap, place.output)) == before
    produce(place.bootstrap, place.topic, some_records(2, 200))
    place.once(spark)
    assert place.breaches() == []
    assert len(consume_all(place.bootstrap, place.output)) > before


def test_a_backlog_is_folded_before_it_is_published(spark: SparkSession, place: Place) -> None:
    """A reader of a fresh output gets each key once, though the backlog came in many micro-batches."""
    produce(place.bootstrap, place.topic, some_records(3, 400))
    place.once(spark, max_offsets_per_trigger=60)
    keys = [(one.source_partition, one.record.key) for one in published(consume_all(place.bootstrap, place.output))]
    assert len(keys) == len(set(keys)) > 0
    assert place.breaches() == []


def test_a_tombstone_reaches_the_output(spark: SparkSession, place: Place) -> None:
    """A key that is deleted after it was published is deleted in the output and gone from the snapshot."""
    produce(place.bootstrap, place.topic, [(0, b"a", b"1"), (0, b"b", b"1")])
    place.once(spark)
    produce(place.bootstrap, place.topic, [(0, b"a", None)])
    place.once(spark)
    output = consume_all(place.bootstrap, place.output)
    assert [(record.key, record.value) for record in output] == [(b"a", b"1"), (b"b", b"1"), (b"a", None)]
    manifest, table = snapshot(place)
    assert set(table) == {(0, b"b")}
    assert manifest["tombstones_excluded"] == 1


def test_a_source_that_grows_by_partitions(spark: SparkSession, place: Place) -> None:
    """New partitions are taken in from offset 0, after the output topic has grown."""
    produce(place.bootstrap, place.topic, some_records(4, 50))
    place.once(spark)
    add_partitions(place.bootstrap, place.topic, 5)
    produce(place.bootstrap, place.topic, some_records(5, 100, partitions=5))
    place.once(spark)
    assert place.breaches() == []
    assert set(place.published()) == {0, 1, 2, 3, 4}


def test_aborted_records_never_reach_the_output(spark: SparkSession, place: Place) -> None:
    """An aborted transaction neither appears nor hides an older committed value, also at the end of the log."""
    produce_transaction(place.bootstrap, place.topic, [(0, b"a", b"kept")])
    produce_transaction(place.bootstrap, place.topic, [(0, b"a", b"aborted"), (0, b"b", b"aborted")], commit=False)
    place.once(spark)
    output = consume_all(place.bootstrap, place.output)
    assert [(record.key, record.value) for record in output] == [(b"a", b"kept")]
    assert place.published()[0] == 5


def test_a_record_without_a_key_stops_a_strict_connector(spark: SparkSession, place: Place) -> None:
    """With errors.tolerance=none the error names topic, partition and offset, and nothing is lost."""
    produce(place.bootstrap, place.topic, [(1, b"a", b"1"), (1, None, b"keyless")])
    with pytest.raises(RejectedRecordError, match=rf"topic {place.topic}, partition 1, offset 1.*errors.tolerance=all"):
        place.once(spark)
    place.once(spark, errors_tolerance="all")
    assert place.breaches() == []
    assert [record.key for record in consume_all(place.bootstrap, place.output)] == [b"a"]


def test_a_record_without_a_key_goes_to_the_dead_letters(spark: SparkSession, place: Place) -> None:
    """With errors.tolerance=all its original bytes are in the dead letter topic, once, and never in the output."""
    dead = f"{place.topic}.dead"
    produce(place.bootstrap, place.topic, [(0, None, b"v", [("h", b"1")], BASE_MS), (0, b"a", b"1")])
    changes: dict[str, object] = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": dead}
    place.once(spark, **changes)
    place.once(spark, **changes)
    letters = consume_all(place.bootstrap, dead)
    assert [(r.key, r.value, r.headers, r.timestamp_ms) for r in letters] == [(None, b"v", (("h", b"1"),), BASE_MS)]
    assert [record.key for record in consume_all(place.bootstrap, place.output)] == [b"a"]


def test_nothing_is_published_with_output_none(spark: SparkSession, place: Place) -> None:
    """With output.topic=none only snapshots are made, and the position still shows the progress."""
    produce(place.bootstrap, place.topic, some_records(6, 100))
    place.once(spark, output_topic="none")
    _, table = snapshot(place)
    assert table == living(place)
    assert sum(place.published().values()) == 100
