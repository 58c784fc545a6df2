"""A snapshot and the changelog behind it: load the one, go on in the other, miss nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.kafka import consume_all, produce
from tests.support.place import Place
from tests.support.records import living, newest, snapshot, some_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_consumer_goes_on_from_the_very_record(spark: SparkSession, place: Place) -> None:
    """A snapshot's offsets stand right behind its last record; with the output from there on it is the newest state."""
    produce(place.bootstrap, place.topic, some_records(1, 300))
    place.once(spark)
    manifest, found = snapshot(place)
    offsets = {int(partition): offset for partition, offset in manifest["output_offsets"].items()}
    assert not [one for one in consume_all(place.bootstrap, place.output) if one.offset >= offsets[one.partition]]
    produce(place.bootstrap, place.topic, some_records(2, 300))
    place.once(spark)
    table = {at: value for at, (_, value) in found.items()}
    for record in consume_all(place.bootstrap, place.output):
        if record.offset >= offsets[record.partition]:
            table[(record.partition, record.key)] = record.value or b""
            if record.value is None:
                del table[(record.partition, record.key)]
    assert table == {at: value for at, (_, value) in living(place).items()}


def test_old_snapshots_go_and_the_newest_stay(spark: SparkSession, place: Place) -> None:
    """snapshot.retention.count snapshots are kept, and LATEST names the newest."""
    found = []
    for seed in range(3):
        produce(place.bootstrap, place.topic, some_records(seed, 20))
        place.once(spark, snapshot_retention_count=2)
        found.append(newest(place).name)
    kept = sorted(path.name for path in newest(place).parent.iterdir() if path.is_dir())
    assert kept == sorted(found[1:])
