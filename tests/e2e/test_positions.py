"""The committed position: lost, set back, foreign, ahead of the log. It is resolved, or FAILED with what to do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from msgspec.structs import replace

from compactor.catalog.catalog import Catalog
from compactor.errors import NoCatalogError, NotVisibleError, PositionError
from compactor.storage.locations import open_storage
from connectors.config.engine_settings import engine_settings
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import OutputError, SourceChangedError
from connectors.runtime import components, reading_thread
from tests.support.deployment import Deployment
from tests.support.group_offsets import delete_group, hold, positions, reset_offsets
from tests.support.kafka import (
    TIMEOUT_S,
    admin,
    consume_all,
    create_topic,
    delete_topic,
    end_offsets,
    produce,
    wait_until,
)
from tests.support.open_transactions import hidden_fold
from tests.support.records import random_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

YEAR_MS = 365 * 24 * 3_600_000


@pytest.fixture
def ran(spark: SparkSession, deployment: Deployment, soon_gone: None) -> Deployment:  # how it runs
    """A connector that has published 200 records, and soon is sure that a topic is gone."""
    return published(spark, deployment)


@pytest.fixture(scope="module")
def lived(spark: SparkSession, broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """One for tests after which it has published everything, or can: the next goes on from there."""
    topic = create_topic(broker.bootstrap, f"lived-{uuid4().hex[:10]}", 2, cleanup_policy="delete")
    return published(spark, Deployment(tmp_path_factory.mktemp("lived"), broker.bootstrap, topic))


def published(spark: SparkSession, deployment: Deployment) -> Deployment:
    """`place` after its first run."""
    deployment.publishing_only()
    produce(deployment.bootstrap, deployment.topic, random_records(1, 200))
    deployment.run_once(spark)
    return deployment


def held(deployment: Deployment) -> dict[int, int]:
    """What the group holds."""
    consumer = Consumer({"bootstrap.servers": deployment.bootstrap, "group.id": f"connect-{deployment.name}"})
    answers = consumer.committed([TopicPartition(deployment.topic, number) for number in (0, 1)], TIMEOUT_S)
    consumer.close()
    return {answer.partition: answer.offset for answer in answers}


@pytest.mark.parametrize(
    "lose", [delete_group, lambda deployment: reset_offsets(deployment, 3)], ids=["expired", "set back"]
)
def test_a_lost_position_is_found_again_in_catalog_and_output(
    spark: SparkSession, lived: Deployment, lose: object
) -> None:
    """Lag tools see the progress in the group; after its offsets are gone or set back nothing is published twice."""
    assert held(lived) == end_offsets(lived.bootstrap, lived.topic)
    lose(lived)  # type: ignore[operator]
    produce(lived.bootstrap, lived.topic, random_records(2, 100))
    lived.run_once(spark)
    assert lived.violations() == []
    assert held(lived) == end_offsets(lived.bootstrap, lived.topic) == lived.published()


def test_a_lost_position_is_not_guessed_below_an_open_transaction(
    spark: SparkSession, ran: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hide our own last record, which the catalog does not know of either: nothing is sent until it is over."""
    with hidden_fold(spark, ran, monkeypatch, seed=2):
        delete_group(ran)
        before = end_offsets(ran.bootstrap, ran.output, "read_uncommitted")
        with pytest.raises(NotVisibleError, match="was published cannot be read from its output"):
            ran.run_once(spark)
        assert end_offsets(ran.bootstrap, ran.output, "read_uncommitted") == before
    ran.run_once(spark)
    assert ran.violations() == []
    assert ran.caught_up()


def renews_often(monkeypatch: pytest.MonkeyPatch, **settings: int) -> None:
    """Has connectors look five times a second whether a position is to be committed again, with these settings."""
    monkeypatch.setattr(reading_thread, "RENEW_MS", 200)
    monkeypatch.setattr(components, "engine_settings", lambda config: replace(engine_settings(config), **settings))


def test_a_paused_connector_commits_its_positions_again(
    spark: SparkSession, ran: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers would forget them, and without source headers nothing else tells how far it had come; nothing is sent."""
    ran.settings["output.source.headers.enable"] = False
    renews_often(monkeypatch, first_refresh_ms=0)
    produce(ran.bootstrap, ran.topic, random_records(2, 50))
    before, output = positions(ran), consume_all(ran.bootstrap, ran.output)
    hold(ran, {tp: replace(one, buckets=None) for tp, one in before.items()})
    with ran.running(spark, paused=True):
        wait_until(lambda: positions(ran) == before, "the positions are as this version commits them")
    assert consume_all(ran.bootstrap, ran.output) == output
    ran.run_once(spark)
    assert ran.caught_up()


def test_a_deleted_topic_keeps_no_position_of_a_paused_connector_from_being_renewed(
    spark: SparkSession, ran: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is closed while the connector is paused, and the others are renewed.

    The group has no position for it any more and takes none; without source headers the output does not tell one.
    """
    ran.settings["output.source.headers.enable"] = False
    other = create_topic(ran.bootstrap, f"{ran.topic}-other", 2, cleanup_policy="delete")
    ran.settings["topics"] = f"{ran.topic},{other}"
    produce(ran.bootstrap, other, random_records(2, 50))
    ran.run_once(spark)
    renews_often(monkeypatch, first_refresh_ms=0, position_refresh_ms=0)
    before = positions(ran)
    with ran.running(spark, paused=True):
        for is_deleted in (False, True):
            if is_deleted:
                delete_topic(ran.bootstrap, other)
            hold(ran, {tp: replace(one, buckets=None) for tp, one in before.items()})
            wait_until(lambda: positions(ran) == before, "the positions of the topic that is there are renewed")
    assert ran.state().topics[other].closed == "deleted"


def test_two_storages_under_one_name(spark: SparkSession, lived: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second storage finds another catalog's positions: it says so with the choices, and nothing is made in it."""
    kept = lived.worker["storage.location"]
    with monkeypatch.context() as patch:
        patch.setitem(lived.worker, "storage.location", kept + "-other")
        with pytest.raises(NoCatalogError, match="belongs to catalog") as raised:
            lived.run_once(spark)
        assert raised.value.retriable
    assert Catalog.open(open_storage(kept + "-other").sub(lived.name), lived.name).version == 0
    lived.run_once(spark)
    assert lived.violations() == []


@contextmanager
def storage_lost(deployment: Deployment) -> Iterator[None]:
    """Without the storage folder, until it is restored."""
    storage, aside = Path(deployment.worker["storage.location"]), deployment.folder / "aside"
    storage.rename(aside)
    try:
        yield
    finally:
        shutil.rmtree(storage, ignore_errors=True)
        aside.rename(storage)


def test_storage_and_positions_lost(spark: SparkSession, lived: Deployment) -> None:
    """A fresh catalog never takes an output that holds its source's records for a first run."""
    delete_group(lived)
    with storage_lost(lived), pytest.raises(NoCatalogError, match="already holds source offset"):
        lived.run_once(spark)


def test_storage_and_positions_lost_where_records_do_not_say_where_from(
    spark: SparkSession, deployment: Deployment
) -> None:
    """With output.source.headers.enable=false an output that holds records is no first run either; nothing is sent."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, 50))
    deployment.run_once(spark, output_source_headers_enable="false")
    before = len(consume_all(deployment.bootstrap, deployment.output))
    shutil.rmtree(deployment.worker["storage.location"])
    delete_group(deployment)
    for headers in ("false", "true"):
        with pytest.raises(PositionError, match="all may have been published already") as raised:
            deployment.run_once(spark, output_source_headers_enable=headers)
        assert "Restore the storage folder" in raised.value.action
    assert len(consume_all(deployment.bootstrap, deployment.output)) == before


def test_an_altered_output_topic(spark: SparkSession, lived: Deployment) -> None:
    """What would let its keys expire is found at the next start, with what to change; put back, it goes on."""

    def alter(policy: str) -> None:
        # A limit, but one that nothing reaches: these records are of 2023, and the broker may look for what has
        # expired at any moment.
        wanted = {"cleanup.policy": policy, "retention.ms": str(100 * YEAR_MS)}
        entries = [ConfigEntry(*one, incremental_operation=AlterConfigOpType.SET) for one in wanted.items()]
        resource = ConfigResource(ResourceType.TOPIC, lived.output, incremental_configs=entries)
        client = admin(lived.bootstrap)
        client.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    alter("compact,delete")
    try:
        with pytest.raises(OutputError, match=r"cleanup.policy contains delete, .*: keys would expire"):
            lived.run_once(spark)
    finally:
        alter("compact")
    produce(lived.bootstrap, lived.topic, random_records(2, 100))
    lived.run_once(spark)
    assert lived.violations() == []


def test_a_catalog_that_lost_commits_waits_for_the_log(spark: SparkSession, lived: Deployment) -> None:
    """With a position above the log's end nothing is published until ingest has passed it, and nothing twice.

    The epoch is one that was there before; nothing of its first run is gone on from.
    """
    folder, copy = lived.folder / "storage" / lived.name, lived.folder / "copy"
    shutil.copytree(folder, copy)
    produce(lived.bootstrap, lived.topic, random_records(2, 100))
    lived.run_once(spark)
    for seed, lost in enumerate((".", "catalog"), 3):  # the whole folder, its catalog alone
        before = len(consume_all(lived.bootstrap, lived.output))
        shutil.rmtree(folder / lost)
        shutil.copytree(copy / lost, folder / lost)
        lived.run_once(spark)
        assert len(consume_all(lived.bootstrap, lived.output)) == before
        produce(lived.bootstrap, lived.topic, random_records(seed, 100))
        lived.run_once(spark)
        assert lived.violations() == []
        assert lived.published() == end_offsets(lived.bootstrap, lived.topic)


def test_a_deleted_or_recreated_output_topic(spark: SparkSession, ran: Deployment) -> None:
    """The output topic is gone: FAILED, never made again behind the operator's back; another of its name is not it."""
    delete_topic(ran.bootstrap, ran.output)
    with pytest.raises(OutputError, match="was deleted"):
        ran.run_once(spark)
    create_topic(ran.bootstrap, ran.output, 2, cleanup_policy="compact")
    with pytest.raises(OutputError, match="was recreated"):
        ran.run_once(spark)


def test_a_recreated_or_deleted_source_topic(spark: SparkSession, ran: Deployment) -> None:
    """Offsets of a recreated source mean something else: FAILED, go on under a new connector name.

    The log of one that is gone is closed, with the reason, and what is published stays.
    """
    before = ran.published()
    delete_topic(ran.bootstrap, ran.topic)
    create_topic(ran.bootstrap, ran.topic, 2, cleanup_policy="delete")
    with pytest.raises(SourceChangedError, match="new connector name"):
        ran.run_once(spark)
    delete_topic(ran.bootstrap, ran.topic)
    state = ran.run_once(spark)
    assert state.topics[ran.topic].closed == "deleted"
    assert ran.published() == before
