"""A change of offsets that is killed or frozen, or meets an older catalog, a lost position, an open transaction."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

import pytest

from compactor import failpoints
from compactor.catalog.catalog import Catalog
from compactor.errors import FailpointError, FencedError, NotVisibleError, OffsetChangeError
from compactor.generation.plan import OffsetChange
from compactor.model.actions import CloseTopic
from compactor.model.record import TopicPartition
from compactor.storage.locations import open_storage
from connectors.config.files import load_worker
from connectors.errors import UnreachableError
from connectors.operations.offsets import change_offsets
from connectors.runtime import offset_change
from connectors.runtime.offset_change import ChangedLog, every_log
from connectors.sinks import publisher
from connectors.sinks.settings import TransactionLimits
from connectors.source.source_errors import TRUNCATED
from tests.support.deployment import Deployment
from tests.support.generations import broken, numbers
from tests.support.group_offsets import reset_offsets
from tests.support.kafka import create_topic, delete_topic, end_offsets, produce
from tests.support.open_transactions import hidden_fold, hidden_output
from tests.support.records import random_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("soon_gone", "ran")


@pytest.fixture
def ran(spark: SparkSession, deployment: Deployment) -> Deployment:
    """A connector that has published 200 records of two partitions."""
    deployment.publishing_only()
    produce(deployment.bootstrap, deployment.topic, random_records(1, 200))
    deployment.run_once(spark)
    return deployment


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction holds five records."""
    limits = partial(TransactionLimits, transaction_bytes=1, batch_records=5)
    monkeypatch.setattr(publisher, "TransactionLimits", limits)


def change(deployment: Deployment, offsets: dict[int, int] | None = None) -> tuple[ChangedLog, ...]:
    """Changes the offsets of partitions as REST does; all anew, as `keyfold resync` does, where none are given."""
    config = deployment.config()
    worker = load_worker(deployment.folder / "worker.json")
    if offsets is None:
        return change_offsets(worker, config, every_log())
    wanted = OffsetChange(offsets={TopicPartition(deployment.topic, at): to for at, to in offsets.items()})
    return change_offsets(worker, config, lambda _: wanted)


def fail_at(monkeypatch: pytest.MonkeyPatch, step: str, hit: int = 1) -> None:
    """Makes the step fail from its `hit`th time on."""
    monkeypatch.setenv(failpoints.VARIABLE, f"{step}@{failpoints.hits(step) + hit}=error")


def sent_in_part(spark: SparkSession, deployment: Deployment) -> None:
    """Runs until some transactions of a fold are committed, and fails."""
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, "publish.committed", 4)
        with pytest.raises(FailpointError):
            deployment.run_once(spark)


def killed_before_positions(deployment: Deployment, offsets: dict[int, int] | None = None) -> None:
    """Changes offsets, and fails between G3 and G4."""
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, "generation.after-commit")
        with pytest.raises(FailpointError):
            change(deployment, offsets)


def test_killed_before_the_positions_of_an_output_that_was_recreated(spark: SparkSession, ran: Deployment) -> None:
    """The group's position counts in the output that is gone, and in an earlier generation: it counts as none."""
    delete_topic(ran.bootstrap, ran.output)
    create_topic(ran.bootstrap, ran.output, 2, cleanup_policy="compact")
    killed_before_positions(ran)
    ran.run_once(spark)
    assert broken(ran) == []


@pytest.mark.long  # test_killed_before_the_positions_of_an_output_that_was_recreated has a position of another one
def test_a_catalog_that_was_set_back_begins_a_generation_that_was_never_there(
    spark: SparkSession, ran: Deployment
) -> None:
    """The position, or where that is gone the output, names the newest one: its number is not given twice."""
    storage, backup = ran.folder / "storage", ran.folder / "backup"
    shutil.copytree(storage, backup)
    change(ran)
    ran.run_once(spark)
    for expected in (3, 4):
        shutil.rmtree(storage)
        shutil.copytree(backup, storage)
        assert [one.generation for one in change(ran)] == [expected, expected]
        ran.run_once(spark)
        assert broken(ran) == []
        reset_offsets(ran, 3)


def test_a_change_that_was_frozen_sets_no_position_of_a_newer_owner_back(
    spark: SparkSession, ran: Deployment, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps before G4; meanwhile another owner has sent a part of the first fold."""

    def sleep(step: str) -> None:
        if step == "generation.after-commit":
            sent_in_part(spark, ran)

    with monkeypatch.context() as patch:
        patch.setattr(offset_change, "hit", sleep)
        with pytest.raises(FencedError):
            change(ran)
    ran.run_once(spark)
    assert broken(ran) == []


@pytest.mark.long  # test_killed_before_the_positions_of_an_output_that_was_recreated is alike
def test_nothing_is_sent_again_where_a_change_finds_a_foreign_position_inside_the_first_fold(
    spark: SparkSession, ran: Deployment, small: None
) -> None:
    """To ask again for where the generation begins changes nothing: the output tells how far its fold has come."""
    change(ran)
    sent_in_part(spark, ran)
    reset_offsets(ran, 3)
    assert change(ran, {0: 0, 1: 0}) == ()
    ran.run_once(spark)
    assert broken(ran) == []


def test_a_gap_that_the_group_was_not_told_of(spark: SparkSession, ran: Deployment) -> None:
    """Without source headers the output cannot tell; the catalog can, as nothing was begun behind the gap."""
    ran.write(output_source_headers_enable=False)
    produce(ran.bootstrap, ran.topic, random_records(5, 60))
    behind = {at: end + 5 for at, end in ran.published().items()}
    killed_before_positions(ran, behind)
    assert change(ran, behind) == ()
    assert numbers(ran.run_once(spark)) == [1, 1]
    assert ran.caught_up()


def test_what_was_sent_in_part_is_not_given_up(spark: SparkSession, ran: Deployment, small: None) -> None:
    """The log would forget what the output has of it; once all is sent the rest may go."""
    produce(ran.bootstrap, ran.topic, random_records(5, 60))
    sent_in_part(spark, ran)
    before, ends = ran.state().logs, end_offsets(ran.bootstrap, ran.topic)
    with pytest.raises(OffsetChangeError, match="what the output has of it would be forgotten"):
        change(ran, ends)
    assert ran.state().logs == before
    ran.run_once(spark)
    produce(ran.bootstrap, ran.topic, random_records(6, 60))
    ends = end_offsets(ran.bootstrap, ran.topic)
    skipped = {at: range(published, ends[at]) for at, published in ran.published().items()}
    assert [one.skipped for one in change(ran, ends)] == [len(skipped[0]), len(skipped[1])]
    ran.run_once(spark)
    assert broken(ran, skipped) == []


def test_a_topic_that_was_cut_is_not_read_on_for_one_partitions_sake(ran: Deployment) -> None:
    """Its log may have grown again since: what the other one lacks would never be known."""
    catalog = Catalog.open(open_storage(str(ran.folder / "storage")).sub(ran.name), ran.name)
    catalog.take_over("test", 0)
    before = catalog.commit(lambda _: [CloseTopic(topic=ran.topic, reason=TRUNCATED)], 0)
    for offsets in ({0: 0}, {1: before.log(TopicPartition(ran.topic, 1)).end}):
        with pytest.raises(OffsetChangeError, match="records of it were taken back"):
            change(ran, offsets)
    assert ran.state().topics[ran.topic].closed == TRUNCATED
    assert [one.generation for one in change(ran)] == [2, 2]
    assert ran.state().topics[ran.topic].closed is None


@pytest.mark.long  # test_what_an_open_transaction_hides_is_not_given_up has one in an output that is read for its ends
def test_a_foreign_transaction_that_is_open_in_the_output(
    spark: SparkSession, ran: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies behind it cannot be read, so that keys would be left for ever: nothing is changed until it is over."""
    with hidden_output(ran, monkeypatch):
        produce(ran.bootstrap, ran.topic, [(partition, b"beyond", b"v") for partition in (0, 1)])
        with pytest.raises(NotVisibleError):  # all is done; readers see it when the transaction is over
            ran.run_once(spark)
        before = ran.state().logs
        with pytest.raises(UnreachableError, match="has a transaction that is open"):
            change(ran)
        delete_topic(ran.bootstrap, ran.topic)
        create_topic(ran.bootstrap, ran.topic, 2, cleanup_policy="delete")
        produce(ran.bootstrap, ran.topic, random_records(9, 60))
        with pytest.raises(NotVisibleError, match="cannot be read from its output"):  # positions went with the topic
            change(ran)
        assert ran.state().logs == before
    change(ran)
    ran.run_once(spark)
    assert broken(ran) == []


def test_what_an_open_transaction_hides_is_not_given_up(
    spark: SparkSession, ran: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a position the output tells how far a fold was sent: no gap is made until it can be read."""
    with hidden_fold(spark, ran, monkeypatch, seed=5):
        reset_offsets(ran, 3)
        before, ends = ran.state().logs, end_offsets(ran.bootstrap, ran.topic)
        with pytest.raises(NotVisibleError, match="was published cannot be read from its output"):
            change(ran, ends)
        assert ran.state().logs == before
    ran.run_once(spark)
    assert broken(ran) == []
