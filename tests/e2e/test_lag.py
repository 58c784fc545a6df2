"""min.compaction.lag.ms: what waits, and what a change of it may not do."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from connectors.sinks import publisher as changelog
from connectors.sinks.settings import TransactionLimits
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment
from tests.support.failing_tasks import failing_tasks
from tests.support.kafka import ToSend, consume_all, end_offsets, produce, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000


@pytest.fixture
def deployment(deployment: Deployment) -> Deployment:
    """The folder's own, plain."""
    return deployment.publishing_only()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_young_record_waits_and_only_it(spark: SparkSession, deployment: Deployment) -> None:
    """With a lag, the output ends right before the first young record, exact to the record."""
    old_ms = now_ms() - 2 * HOUR_MS
    old = [ToSend(0, b"a", b"1", [], old_ms), ToSend(0, b"a", b"2", [], old_ms)]
    young = ToSend(0, b"a", b"3", [], now_ms())
    produce(deployment.bootstrap, deployment.topic, [*old, young, ToSend(0, b"b", b"1", [], old_ms)])
    deployment.run_once(spark, min_compaction_lag_ms=HOUR_MS)
    assert deployment.published()[0] == 2
    assert [record.value for record in consume_all(deployment.bootstrap, deployment.output)] == [b"2"]


def test_a_lag_ends_without_new_input(spark: SparkSession, deployment: Deployment) -> None:
    """Records are published once their lag is over, though nothing more is produced."""
    produce(deployment.bootstrap, deployment.topic, [(0, b"a", b"1", [], now_ms()), (1, b"b", b"1", [], now_ms())])
    with deployment.running(spark, min_compaction_lag_ms=4000):
        wait_until(lambda: ingested(deployment), "all is ingested", PROCESS_TIMEOUT_S)
        wait_until(deployment.caught_up, "the lag is over and all is published", PROCESS_TIMEOUT_S)
    assert deployment.violations() == []


def ingested(deployment: Deployment) -> bool:
    """Whether everything in the source is in the catalog."""
    ends = {log.partition: log.end for log in deployment.state().logs} if deployment.taken_over() else {}
    return ends == end_offsets(deployment.bootstrap, deployment.topic)


@pytest.mark.long  # test_a_lag_ends_without_new_input has a lag
def test_a_lag_raised_inside_a_fold_sent_in_parts(
    spark: SparkSession, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold that was sent in part goes on to the end it had, whatever the lag says by then.

    A task that ends is tried once more before the life fails: so two of its three transactions are sent.
    """
    monkeypatch.setattr(changelog, "TransactionLimits", partial(TransactionLimits, transaction_bytes=320_000))
    large = [ToSend(0, f"k{number % 900}".encode(), bytes(1_000)) for number in range(1000)]
    produce(deployment.bootstrap, deployment.topic, large, **{"compression.type": "lz4"})
    with failing_tasks(spark, "publish.committed=kill"), pytest.raises(Exception, match="Python worker exited"):
        deployment.run_once(spark, publish_local_max_records=-1)
    sent = len(consume_all(deployment.bootstrap, deployment.output))
    assert 0 < sent < 900
    deployment.run_once(spark, min_compaction_lag_ms=HOUR_MS)
    assert deployment.caught_up()
    assert len(consume_all(deployment.bootstrap, deployment.output)) == 900
    assert deployment.violations() == []
