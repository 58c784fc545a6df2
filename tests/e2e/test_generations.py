"""A partition's log that is read anew: the output stays as it is until all is read, then becomes equal to it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from compactor.errors import QuarantinedError
from compactor.failpoints import VARIABLE
from connectors.errors import EXIT_FAILED
from connectors.operations.standing_result import STANDS
from connectors.runtime.stop import Stop
from tests.support.cli import invoke
from tests.support.deployment import Deployment
from tests.support.generations import broken, generation_of, is_synthetic, live, numbers
from tests.support.kafka import consume_all, create_topic, delete_records, delete_topic, end_offsets, produce
from tests.support.queries import shared_query
from tests.support.records import random_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("soon_gone", "ran")


@pytest.fixture
def ran(spark: SparkSession, deployment: Deployment) -> Deployment:
    """A connector that has published 200 records of two partitions."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, 200))
    deployment.run_once(spark)
    return deployment


def resync(deployment: Deployment, *options: object) -> list[dict[str, object]]:
    """What `keyfold resync --json` says."""
    connector, worker = deployment.write()
    result = invoke("resync", connector, "--worker", worker, "--json", *options)
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


def test_a_change_that_stands_is_told_though_an_error_follows(
    spark: SparkSession, ran: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is on stdout, the command ends as the error says, and the next run goes on from the change."""
    connector, worker = ran.write()
    monkeypatch.setenv(VARIABLE, "takeover.topics=error")
    result = invoke("resync", connector, "--worker", worker, "--json")
    monkeypatch.delenv(VARIABLE)
    assert result.exit_code == EXIT_FAILED
    assert [each["generation"] for each in json.loads(result.stdout)] == [2, 2]
    assert STANDS in " ".join(result.stderr.split())
    assert numbers(ran.run_once(spark)) == [2, 2]


def recreate(deployment: Deployment, topic: str, policy: str) -> None:
    """Recreates a topic, empty."""
    delete_topic(deployment.bootstrap, topic)
    create_topic(deployment.bootstrap, topic, 2, cleanup_policy=policy)


def test_a_source_that_was_recreated(spark: SparkSession, ran: Deployment) -> None:
    """Keys that do not come again get tombstones, the others their last record, all named with generation 2."""
    before = live(consume_all(ran.bootstrap, ran.output))
    recreate(ran, ran.topic, "delete")
    produce(ran.bootstrap, ran.topic, random_records(9, 60))
    said = resync(ran)
    assert [(one["generation"], one["offset"]) for one in said] == [(2, 0), (2, 0)]
    assert sum(int(str(one["tombstones"])) for one in said) == len(before)
    state = ran.run_once(spark)
    assert numbers(state) == [2, 2]
    assert ran.published() == end_offsets(ran.bootstrap, ran.topic)
    assert broken(ran) == []
    gone = before.keys() - {(record.partition, record.key) for record in consume_all(ran.bootstrap, ran.topic)}
    assert gone, "some keys must not come again, or nothing is tried"
    synthetic = [record for record in consume_all(ran.bootstrap, ran.output) if is_synthetic(record)]
    assert {(record.partition, record.key) for record in synthetic} == gone


@pytest.mark.long  # test_a_source_that_was_recreated is alike
def test_an_output_that_was_recreated(spark: SparkSession, ran: Deployment) -> None:
    """It is filled again, with no tombstones, as it holds no keys; later records go on as before."""
    recreate(ran, ran.output, "compact")
    assert [one["tombstones"] for one in resync(ran)] == [0, 0]
    ran.run_once(spark)
    assert broken(ran) == []
    produce(ran.bootstrap, ran.topic, random_records(3, 50))
    ran.run_once(spark)
    assert broken(ran) == []
    assert {generation_of(record) for record in consume_all(ran.bootstrap, ran.output)} == {2}


def test_nothing_is_sent_before_the_ends_are_reached(spark: SparkSession, ran: Deployment) -> None:
    """What lies within the lag holds the whole generation back: a reader never sees the output half changed."""
    produce(ran.bootstrap, ran.topic, random_records(4, 40))
    resync(ran)
    before = consume_all(ran.bootstrap, ran.output)
    ran.run_once(spark, min_compaction_lag_ms=3_600_000)
    assert consume_all(ran.bootstrap, ran.output) == before
    described = json.loads(invoke("describe", *_described(ran), "--json").stdout)
    ends = end_offsets(ran.bootstrap, ran.topic)
    assert {one["partition"]: one["waits_for"] for one in described["partitions"]} == ends
    assert [one["published"] for one in described["partitions"]] == [0, 0]
    ran.run_once(spark, min_compaction_lag_ms=0)
    assert broken(ran) == []


def _described(deployment: Deployment) -> tuple[object, ...]:
    connector, worker = deployment.write()
    return connector, "--worker", worker


def test_one_partition_alone(spark: SparkSession, ran: Deployment) -> None:
    """The other one stays in its generation, and goes on."""
    assert [(one["partition"], one["generation"]) for one in resync(ran, "--topic", ran.topic, "--partition", 1)] == [
        (1, 2)
    ]
    produce(ran.bootstrap, ran.topic, random_records(5, 50))
    assert numbers(ran.run_once(spark)) == [1, 2]
    assert broken(ran) == []


@pytest.mark.long  # test_a_source_that_was_recreated has the first one
def test_a_generation_after_another(spark: SparkSession, ran: Deployment) -> None:
    """A third one follows the second, also where nothing of the second was sent."""
    resync(ran)
    resync(ran)
    assert numbers(ran.run_once(spark)) == [3, 3]
    assert broken(ran) == []
    resync(ran)
    assert numbers(ran.run_once(spark)) == [4, 4]
    assert broken(ran) == []


def test_records_that_the_source_has_lost(spark: SparkSession, ran: Deployment) -> None:
    """Keys would be given up: it is refused, nothing is changed, until the loss is accepted."""
    delete_records(ran.bootstrap, ran.topic, 0, 20)
    before, connector_and_worker = ran.state().logs, _described(ran)
    refused = invoke("resync", *connector_and_worker)
    assert refused.exit_code == 2
    assert "partition 0 began at offset 0, and the source begins at 20 now" in " ".join(refused.output.split())
    assert ran.state().logs == before
    assert [one["offset"] for one in resync(ran, "--accept-loss")] == [20, 0]
    ran.run_once(spark)
    assert broken(ran) == []


def test_a_source_that_begins_above_the_position(spark: SparkSession, ran: Deployment) -> None:
    """What was never read is a loss, no gap that was asked for: refused until accepted, then counted.

    Keys that do not come again get tombstones, and the next run counts what is lost, though a command began it.
    """
    before = ran.state().logs
    produce(ran.bootstrap, ran.topic, random_records(4, 100))
    ends = end_offsets(ran.bootstrap, ran.topic)
    start, lost = ends[0] - 5, ends[0] - 5 - ran.published()[0]
    delete_records(ran.bootstrap, ran.topic, 0, start)
    refused = invoke("resync", *_described(ran))
    assert refused.exit_code == 2, refused.output
    assert f"The {lost} offsets from {ran.published()[0]} on are in no output" in " ".join(refused.output.split())
    assert ran.state().logs == before
    said = resync(ran, "--accept-loss")
    assert [(one["generation"], one["offset"], one["skipped"]) for one in said] == [(2, start, lost), (2, 0, 0)]
    task = ran.task(spark)
    with shared_query(spark) as query:
        task.run(Stop(), query, once=True, start=ran.drawn_start())
    ran.lock.release()
    assert task.counted is not None
    assert task.counted.counters["offsets_lost"] == lost
    assert broken(ran) == []
    ran.run_once(spark)
    assert [sum(gap.end - gap.start for gap in log.gaps) for log in ran.state().logs] == [lost, 0]


def test_a_log_whose_file_is_lost(spark: SparkSession, ran: Deployment) -> None:
    """It is set aside; the source still has its records, and read anew it is one as others again."""
    ran.storage.delete_all([path for path in ran.state().paths if path.startswith("runs/")])
    produce(ran.bootstrap, ran.topic, random_records(6, 50))
    with pytest.raises(QuarantinedError):
        ran.run_once(spark, min_cleanable_dirty_ratio=0, max_compaction_lag_ms=1)
    assert all(log.quarantine for log in ran.state().logs)
    resync(ran)
    state = ran.run_once(spark)
    assert [log.quarantine for log in state.logs] == [None, None]
    assert numbers(state) == [2, 2]
    assert broken(ran) == []
