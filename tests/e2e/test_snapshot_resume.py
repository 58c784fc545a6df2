"""A snapshot and the changelog behind it: load the one, go on in the other, miss nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from tests.e2e.test_once import living, some_records
from tests.support.kafka import consume_all, produce
from tests.support.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def newest(place: Place) -> Path:
    """The folder that LATEST names."""
    folder = Path(place.settings["snapshot.location"]) / place.name / place.topic
    return folder / (folder / "LATEST").read_text().strip()


def loaded(folder: Path) -> tuple[dict[str, Any], dict[tuple[int, bytes], bytes]]:
    """The manifest, and (partition, key) → value."""
    query = f"select partition, key, value from '{folder}/data/*.parquet'"
    rows = duckdb.connect().execute(query).fetchall()
    return json.loads((folder / "manifest.json").read_text()), {(row[0], row[1]): row[2] for row in rows}


def test_a_consumer_goes_on_from_the_very_record(spark: SparkSession, place: Place) -> None:
    """An older snapshot plus the output from its offsets on is the newest state, deletions included."""
    produce(place.bootstrap, place.topic, some_records(1, 300))
    place.once(spark)
    manifest, table = loaded(newest(place))
    produce(place.bootstrap, place.topic, some_records(2, 300))
    place.once(spark)
    for record in consume_all(place.bootstrap, place.output):
        if record.offset >= manifest["output_offsets"][str(record.partition)] and record.key is not None:
            table[(record.partition, record.key)] = record.value or b""
            if record.value is None:
                del table[(record.partition, record.key)]
    assert table == {at: value for at, (_, value) in living(place).items()}


def test_the_offsets_of_a_snapshot_skip_what_it_holds(spark: SparkSession, place: Place) -> None:
    """Nothing that the snapshot holds is read again: its offsets stand right behind its last record."""
    produce(place.bootstrap, place.topic, some_records(1, 100))
    place.once(spark)
    manifest, _ = loaded(newest(place))
    output = consume_all(place.bootstrap, place.output)
    assert [record for record in output if record.offset >= manifest["output_offsets"][str(record.partition)]] == []


def test_old_snapshots_go_and_the_newest_stay(spark: SparkSession, place: Place) -> None:
    """snapshot.retention.count snapshots are kept, and LATEST names the newest."""
    found = []
    for seed in range(3):
        produce(place.bootstrap, place.topic, some_records(seed, 20))
        place.once(spark, snapshot_retention_count=2)
        found.append(newest(place).name)
    kept = sorted(path.name for path in newest(place).parent.iterdir() if path.is_dir())
    assert kept == sorted(found[1:])
