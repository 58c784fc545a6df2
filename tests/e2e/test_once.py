"""`run --once`: a topic goes in, a compacted topic and a Parquet snapshot come out."""

from __future__ import annotations

import shlex
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import duckdb
import pytest

from compactor.errors import RejectedRecordError
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import EXIT_OK
from tests.support.deployment import Deployment
from tests.support.kafka import (
    add_partitions,
    consume_all,
    create_topic,
    end_offsets,
    produce,
    produce_transaction,
)
from tests.support.promises import with_sources
from tests.support.records import BASE_MS, live_records, random_records, read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Ran(NamedTuple):
    """One connector after three runs, seen from each of its topics; the second run found nothing new."""

    sent: list[int]
    """How many records the output of `continued` had after each run."""
    snapshots: list[int]
    """How many snapshots of all topics the catalog named after each run."""
    plain: Deployment
    continued: Deployment
    deleted: Deployment
    grown: Deployment
    aborted: Deployment


@pytest.fixture(scope="module")
def ran(spark: SparkSession, broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    bootstrap, stem = broker.bootstrap, f"once-{uuid4().hex[:10]}"
    names = [create_topic(bootstrap, f"{stem}-{each}", 2, cleanup_policy="delete") for each in Ran._fields[2:]]
    connector = Deployment(tmp_path_factory.mktemp("once"), bootstrap, names[0])
    connector.settings["topics"] = ",".join(names)
    one = Ran([], [], *map(connector.for_topic, names))

    def run() -> None:
        one.snapshots.append(len(connector.run_once(spark).snapshots))
        one.sent.append(len(consume_all(bootstrap, one.continued.output)))

    produce(bootstrap, one.plain.topic, random_records(1, 500))
    produce(bootstrap, one.continued.topic, random_records(1, 200))
    produce(bootstrap, one.deleted.topic, [(0, b"a", b"1"), (0, b"b", b"1")])
    produce(bootstrap, one.grown.topic, random_records(4, 50))
    produce_transaction(bootstrap, one.aborted.topic, [(0, b"a", b"kept")])
    produce_transaction(bootstrap, one.aborted.topic, [(0, b"a", b"aborted"), (0, b"b", b"aborted")], commit=False)
    run()
    run()
    produce(bootstrap, one.continued.topic, random_records(2, 200))
    produce(bootstrap, one.deleted.topic, [(0, b"a", None)])
    add_partitions(bootstrap, one.grown.topic, 5)
    produce(bootstrap, one.grown.topic, random_records(5, 100, partitions=5))
    run()
    return one


def test_output_and_snapshot_hold_the_last_record_of_every_key(ran: Ran) -> None:
    """After --once the output keeps every promise, and the snapshot is the last record of every living key."""
    for deployment in (ran.plain, ran.continued):
        assert deployment.violations() == []
        manifest, table = read_snapshot(deployment)
        assert table == live_records(deployment)
        assert manifest["source_offsets"] == {str(key): value for key, value in deployment.published().items()}


def test_going_on_publishes_only_what_is_new(ran: Ran) -> None:
    """A --once with nothing new sends nothing; a later one sends what came since, in the same order."""
    first, idle, later = ran.sent
    assert 0 < first == idle < later
    assert ran.continued.violations() == []


def test_snapshots_are_not_repeated(ran: Ran) -> None:
    """A --once with nothing new takes none; a later one takes those of the three topics that have something new."""
    assert ran.snapshots == [5, 5, 8]


def test_a_tombstone_reaches_the_output(ran: Ran) -> None:
    """A key that is deleted after it was published is deleted in the output and gone from the snapshot."""
    output = consume_all(ran.deleted.bootstrap, ran.deleted.output)
    assert [(record.key, record.value) for record in output] == [(b"a", b"1"), (b"b", b"1"), (b"a", None)]
    manifest, table = read_snapshot(ran.deleted)
    assert set(table) == {(0, b"b")}
    assert manifest["tombstones_excluded"] == 1


def test_a_source_that_grows_by_partitions(ran: Ran) -> None:
    """New partitions are taken in from offset 0, after the output topic has grown."""
    assert ran.grown.violations() == []
    assert ran.grown.published() == end_offsets(ran.grown.bootstrap, ran.grown.topic)
    assert set(ran.grown.published()) == {0, 1, 2, 3, 4}


def test_aborted_records_never_reach_the_output(ran: Ran) -> None:
    """An aborted transaction neither appears nor hides an older committed value, also at the end of the log."""
    output = consume_all(ran.aborted.bootstrap, ran.aborted.output)
    assert [(record.key, record.value) for record in output] == [(b"a", b"kept")]
    assert ran.aborted.published()[0] == 5


def test_a_backlog_is_folded_before_it_is_published(spark: SparkSession, deployment: Deployment) -> None:
    """A reader of a fresh output gets each key once, though the backlog came in many micro-batches."""
    produce(deployment.bootstrap, deployment.topic, random_records(3, 240))
    deployment.run_once(spark, max_offsets_per_trigger=60)
    keys = [
        (one.source_partition, one.record.key)
        for one in with_sources(consume_all(deployment.bootstrap, deployment.output))
    ]
    assert len(keys) == len(set(keys)) > 0
    assert deployment.violations() == []


def test_a_record_without_a_key_stops_a_strict_connector(spark: SparkSession, deployment: Deployment) -> None:
    """With errors.tolerance=none the error names topic, partition and offset, and nothing is lost."""
    produce(deployment.bootstrap, deployment.topic, [(1, b"a", b"1"), (1, None, b"keyless")])
    with pytest.raises(
        RejectedRecordError, match=rf"topic {deployment.topic}, partition 1, offset 1.*errors.tolerance=all"
    ):
        deployment.run_once(spark)
    deployment.run_once(spark, errors_tolerance="all")
    assert deployment.violations() == []
    assert [record.key for record in consume_all(deployment.bootstrap, deployment.output)] == [b"a"]


def test_a_record_without_a_key_goes_to_the_dead_letters(spark: SparkSession, deployment: Deployment) -> None:
    """With errors.tolerance=all its original bytes are in the dead letter topic, once, and never in the output."""
    dead = f"{deployment.topic}.dead"
    produce(deployment.bootstrap, deployment.topic, [(0, None, b"v", [("h", b"1")], BASE_MS), (0, b"a", b"1")])
    changes: dict[str, object] = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": dead}
    deployment.run_once(spark, **changes)
    deployment.run_once(spark, **changes)
    letters = consume_all(deployment.bootstrap, dead)
    assert [(r.key, r.value, r.headers) for r in letters] == [(None, b"v", (("h", b"1"),))]
    assert letters[0].timestamp_ms > BASE_MS  # it ages from its arrival there
    assert [record.key for record in consume_all(deployment.bootstrap, deployment.output)] == [b"a"]


@pytest.mark.long  # it takes 11 s
def test_records_of_many_megabytes_pass_through(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path, topic_name: str
) -> None:
    """Larger than the producer's usual queue: read, kept, sent by the worker and by Spark's tasks, and snapshotted."""
    most = {"max.message.bytes": 60_000_000}
    create_topic(broker.bootstrap, topic_name, 1, cleanup_policy="delete", **most)
    deployment = Deployment(tmp_path, broker.bootstrap, topic_name)
    large = {key: Random(key).randbytes(40 << 20) for key in (b"a", b"b")}
    for local, (key, value) in zip((100_000, -1), large.items(), strict=True):
        sent = [(0, key, b"old"), (0, key, value), (0, b"small", b"%d" % local)]
        produce(broker.bootstrap, topic_name, sent, **{"message.max.bytes": 60_000_000})
        deployment.run_once(spark, publish_local_max_records=local)
    found = consume_all(broker.bootstrap, deployment.output)
    assert [(one.key, len(one.value or b"")) for one in found] == [
        *((b"a", 40 << 20), (b"small", 6)),
        *((b"b", 40 << 20), (b"small", 2)),
    ]
    assert {one.key: one.value for one in found if one.key in large} == large
    _, table = read_snapshot(deployment)
    assert table == live_records(deployment)


def test_the_command_ends_with_what_it_has_done(deployment: Deployment) -> None:
    """A table on stdout has the topic's counts and its snapshot, and a line that opens it."""
    produce(deployment.bootstrap, deployment.topic, random_records(7, 100))
    with deployment.process("--once") as process:
        assert process.wait() == EXIT_OK, process.tail()
    lines = process.printed().splitlines()
    manifest, table = read_snapshot(deployment)
    sent = len(consume_all(deployment.bootstrap, deployment.output))
    row = next(line.split() for line in lines if line.startswith(f"{deployment.topic} "))
    kept = manifest["records"] + manifest["tombstones_excluded"]
    assert row[:5] == [deployment.topic, "100", str(sent), "0", str(kept)]
    opens = next(line for line in lines if line.startswith("Open it: "))
    assert row[5] in opens
    records = duckdb.sql(shlex.split(opens)[-1].replace("LIMIT 10", ""))
    assert records is not None
    assert len(records.fetchall()) == len(table)


def test_nothing_is_published_with_output_none(spark: SparkSession, deployment: Deployment) -> None:
    """With output.topic=none only snapshots are made, and the position still shows the progress."""
    produce(deployment.bootstrap, deployment.topic, random_records(6, 100))
    deployment.run_once(spark, output_topic="none")
    _, table = read_snapshot(deployment)
    assert table == live_records(deployment)
    assert sum(deployment.published().values()) == 100
