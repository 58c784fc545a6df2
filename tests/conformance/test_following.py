"""A table follows an output that a real broker's own cleaner compacts meanwhile: no change is missed or comes twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from connectors.bootstrap import open_table, resume
from connectors.dev.embedded_config import Layout
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import ResumeError
from tests.conformance.kafka_cleaner import KafkaCleaner
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment
from tests.support.kafka import ToSend, consume_all, create_topic, produce, wait_until
from tests.support.records import live_records, random_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectors.bootstrap import Changes, OpenedTable

ROUNDS = 6
RETENTION_MS = 8_000
CLEANED_AT_ONCE = {"output.topic.config.segment.ms": 100, "output.topic.config.min.cleanable.dirty.ratio": 0}
"""Settings with which the cleaner takes each record of before as soon as a newer one has come for its key."""
Living = dict[tuple[int, bytes], bytes]


@pytest.fixture
def deployment(tmp_path: Path, cleaning_broker: EmbeddedKafka, topic_name: str) -> Deployment:
    """A connector on the broker whose cleaner is quick, which keeps one snapshot."""
    create_topic(cleaning_broker.bootstrap, topic_name, partitions=2)
    made = Deployment(tmp_path, cleaning_broker.bootstrap, topic_name)
    made.settings |= {**CLEANED_AT_ONCE, "snapshot.retention.count": 1}
    return made


class Follower:
    """A reader that keeps what it has read, and its position, between its runs."""

    def __init__(self, opened: OpenedTable, kafka: Mapping[str, str]) -> None:
        self._kafka = kafka
        self.living: Living = {(record.partition or 0, record.key): record.value or b"" for record in opened.records()}
        self.position = opened.position.encode()
        self.begun = opened.position.numbers
        self.seen: list[tuple[int, int]] = []

    def read_on(self, ends: Mapping[int, int]) -> None:
        """Starts, reads up to `ends`, the next offsets after the output's last records, and is gone."""
        with closing(resume(self.position, self._kafka)) as changes:
            wait_until(lambda: self._take(changes) == ends, f"the reader is at {ends}", PROCESS_TIMEOUT_S)

    def _take(self, changes: Changes) -> dict[int, int]:
        for change in changes.poll(0.2):
            self.seen.append((change.partition, change.offset))
            self.living.pop((change.partition, change.key), None)
            if change.value is not None:
                self.living[change.partition, change.key] = change.value
        self.position = changes.position.encode()
        return changes.position.numbers


def _ends(deployment: Deployment) -> dict[int, int]:
    return {read.partition: read.offset + 1 for read in consume_all(deployment.bootstrap, deployment.output)}


def _fill(deployment: Deployment, spark: SparkSession, records: list[ToSend]) -> dict[int, int]:
    """Publishes `records` with the time of now, by which segments roll; returns the ends of the output."""
    produce(deployment.bootstrap, deployment.topic, [each._replace(timestamp_ms=None) for each in records])
    deployment.run_once(spark)
    return _ends(deployment)


def _expected(deployment: Deployment) -> Living:
    return {(partition, key or b""): value for (partition, key), (_, value) in live_records(deployment).items()}


def _cleaned(broker: EmbeddedKafka, output: str) -> Callable[[], dict[int, int]]:
    """Returns what tells up to which offset the broker has cleaned each partition of `output`."""
    cleaner = KafkaCleaner(broker.bootstrap, Layout(broker.log_file.parent).data)
    return lambda: {place[1]: end for place, end in cleaner.checkpoints().items() if place[0] == output}


def _has_passed(cleaned: Callable[[], dict[int, int]], ends: Mapping[int, int]) -> bool:
    now = cleaned()
    return all(now.get(partition, 0) >= end for partition, end in ends.items())


def test_nothing_is_missed_or_comes_twice(
    spark: SparkSession, deployment: Deployment, cleaning_broker: EmbeddedKafka
) -> None:
    """By a table that is open, by a reader of each record, and by one that comes when some of them are gone.

    The snapshot that they began with is removed meanwhile, and newer ones are taken.
    """
    kafka = {"bootstrap.servers": deployment.bootstrap}
    cleaned = _cleaned(cleaning_broker, deployment.output)
    ends = _fill(deployment, spark, random_records(0, 60))
    opened = open_table(deployment.snapshots.location, kafka)
    often, seldom = Follower(opened, kafka), Follower(opened, kafka)
    with opened.table() as table:
        for number in range(1, ROUNDS):
            before, ends = ends, _fill(deployment, spark, random_records(number, 60))
            often.read_on(ends)
            wait_until(partial(_has_passed, cleaned, before), "the cleaner has passed what was there before")
            if number in (ROUNDS // 2, ROUNDS - 1):
                seldom.read_on(ends)
        table.catch_up(PROCESS_TIMEOUT_S)
        expected = _expected(deployment)
        assert {(record.partition, record.key): record.value for record in table} == expected
    assert (often.living, seldom.living) == (expected, expected)
    left = {(read.partition, read.offset) for read in consume_all(deployment.bootstrap, deployment.output)}
    for reader in (often, seldom):
        assert len(set(reader.seen)) == len(reader.seen)
        assert {place for place in left if place[1] >= reader.begun[place[0]]} <= {*reader.seen}
    assert {*seldom.seen} < {*often.seen}, "the broker has removed nothing that was not read yet"
    assert not deployment.snapshots.exists(opened.snapshot)


@pytest.mark.long  # test_nothing_is_missed_or_comes_twice
def test_a_reader_that_was_away_for_too_long_begins_again(spark: SparkSession, deployment: Deployment) -> None:
    """Once the broker may have removed a tombstone that it has not seen: the error says so, and the newest is right."""
    deployment.settings["delete.retention.ms"] = RETENTION_MS
    kafka = {"bootstrap.servers": deployment.bootstrap}
    gone = ToSend(0, b"gone", b"value")
    _fill(deployment, spark, [gone, *random_records(0, 60)])
    away = Follower(open_table(deployment.snapshots.location, kafka), kafka)
    _fill(deployment, spark, [gone._replace(value=None)])
    numbers = iter(range(1, 1_000))

    def is_forgotten() -> bool:
        _fill(deployment, spark, random_records(next(numbers), 60))
        return all(read.key != gone.key for read in consume_all(deployment.bootstrap, deployment.output))

    wait_until(is_forgotten, "the broker has removed the tombstone", PROCESS_TIMEOUT_S)
    with pytest.raises(ResumeError, match="the topic may have forgotten deletions since"):
        resume(away.position, kafka)
    assert (0, gone.key) in away.living
    assert Follower(open_table(deployment.snapshots.location, kafka), kafka).living == _expected(deployment)
