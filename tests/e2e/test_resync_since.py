"""`keyfold resync --since`: rows that a source no longer has are swept once it has sent all others again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from connectors.clock import SYSTEM_CLOCK
from tests.support.cli import invoke
from tests.support.deployment import Deployment
from tests.support.generations import broken, is_synthetic, live, numbers, time_text
from tests.support.kafka import ToSend, consume_all, end_offsets, open_transaction, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("soon_gone")

ROWS = {(partition, b"row %d" % number) for partition in range(2) for number in range(5)}
GHOSTS = {(0, b"row 1"), (1, b"row 4")}
"""Rows that were deleted while nobody read the database's log."""


@pytest.fixture
def again_ms(spark: SparkSession, deployment: Deployment) -> int:
    """The time at which a connector of ten rows began to send those again that are still there."""
    now_ms = SYSTEM_CLOCK.now_ms()
    produce(deployment.bootstrap, deployment.topic, rows(now_ms - 600_000, ROWS, b"before"))
    deployment.run_once(spark)
    produce(deployment.bootstrap, deployment.topic, rows(now_ms - 60_000, ROWS - GHOSTS, b"again"))
    return now_ms - 60_000


def rows(time_ms: int, keys: set[tuple[int, bytes]], value: bytes) -> list[ToSend]:
    """Returns a record of each of `keys`."""
    return [ToSend(partition, key, value, timestamp_ms=time_ms) for partition, key in sorted(keys)]


def resync(deployment: Deployment, *options: object, code: int = 0) -> str:
    """Returns what `keyfold resync` prints."""
    connector, worker = deployment.write()
    result = invoke("resync", connector, "--worker", worker, *options)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else " ".join(result.output.split())


def test_ghosts_are_swept(spark: SparkSession, deployment: Deployment, again_ms: int) -> None:
    """Each gets a tombstone, and no other row does; nothing is lost if the connector had read the rows again."""
    assert live(consume_all(deployment.bootstrap, deployment.output)).keys() == ROWS
    deployment.run_once(spark)
    assert live(consume_all(deployment.bootstrap, deployment.output)).keys() == ROWS  # why a sweep is needed
    said = json.loads(resync(deployment, "--since", time_text(again_ms), "--json"))
    assert [(one["generation"], one["offset"], one["skipped"], one["tombstones"]) for one in said] == [(2, 5, 0, 5)] * 2
    deployment.run_once(spark)
    output = consume_all(deployment.bootstrap, deployment.output)
    assert live(output).keys() == ROWS - GHOSTS
    assert {(one.partition, one.key) for one in output if is_synthetic(one)} == GHOSTS
    assert broken(deployment) == []


@pytest.mark.long  # test_ghosts_are_swept has a time of all partitions
def test_an_offset_of_a_partition(spark: SparkSession, deployment: Deployment, again_ms: int) -> None:
    """The other partition stays as it is; what was not read is a loss that is told."""
    produce(deployment.bootstrap, deployment.topic, [ToSend(0, b"row 2", b"later")])
    place = ("--topic", deployment.topic, "--partition", 0)
    (said,) = json.loads(resync(deployment, "--since", "6", *place, "--json"))
    assert (said["offset"], said["skipped"]) == (6, 1)
    assert numbers(deployment.run_once(spark)) == [2, 1]
    seen = live(consume_all(deployment.bootstrap, deployment.output))
    assert seen.keys() == ROWS - {(0, b"row 0"), (0, b"row 1")}
    assert seen[0, b"row 2"] == b"later"
    refused = resync(deployment, "--since", "600", *place, code=2)
    assert "cannot go on at offset 600: the source holds the offsets from 0 to 10" in refused


def test_a_topic_without_a_record_since_is_left_alone(
    spark: SparkSession, deployment: Deployment, again_ms: int
) -> None:
    """A time that is wrong would else delete all; that the table is empty has to be said."""
    now = time_text(SYSTEM_CLOCK.now_ms() - 1)
    assert "has no record since the time that --since names" in resync(deployment, "--since", now, code=2)
    assert numbers(deployment.state()) == [1, 1]
    resync(deployment, "--since", now, "--accept-loss")
    deployment.run_once(spark)
    assert live(consume_all(deployment.bootstrap, deployment.output)) == {}


def test_a_partition_without_a_record_since_ends_empty(
    spark: SparkSession, deployment: Deployment, again_ms: int
) -> None:
    """None of its rows were sent again; what an open transaction holds comes later, and is read."""
    late = [ToSend(1, b"row 0", b"in a transaction", timestamp_ms=again_ms)]
    time_ms = again_ms + 30_000
    produce(deployment.bootstrap, deployment.topic, [ToSend(0, b"row 3", b"third time", timestamp_ms=time_ms)])
    with open_transaction(deployment.bootstrap, deployment.topic, late) as producer:
        said = json.loads(resync(deployment, "--since", time_text(time_ms), "--json"))
        producer.commit_transaction(30)
    assert [one["offset"] for one in said] == [9, 9]
    deployment.run_once(spark)
    seen = live(consume_all(deployment.bootstrap, deployment.output))
    assert seen == {(0, b"row 3"): b"third time", (1, b"row 0"): b"in a transaction"}
    assert deployment.published() == end_offsets(deployment.bootstrap, deployment.topic)
