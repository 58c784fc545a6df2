"""The cleaner of a running connector: by itself when something is due, and when a command asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from connectors.config.files import load_worker
from connectors.operations.clean import clean
from connectors.operations.release import release
from connectors.operations.snapshot import snapshot
from tests.support.deployment import Deployment
from tests.support.kafka import end_offsets, produce, wait_until
from tests.support.records import random_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def folded(deployment: Deployment) -> bool:
    """Whether every log of the source is one base run up to the source's end."""
    ends = end_offsets(deployment.bootstrap, deployment.topic)
    return {log.partition: log.clean_end for log in deployment.state().logs} == ends


@pytest.mark.timeout(300)
def test_a_running_connector_cleans_by_itself_and_on_command(spark: SparkSession, deployment: Deployment) -> None:
    """What is dirty enough is folded in the background; what is not, once `clean` asks the live worker for it."""
    deployment.worker |= {"log.cleaner.initial.delay.ms": 0, "log.cleaner.backoff.ms": 100}
    produce(deployment.bootstrap, deployment.topic, random_records(1, 200))
    with deployment.running(spark):
        wait_until(lambda: folded(deployment), "the backlog is folded in the background", 90)
        dirty = [(0, b"one more", b"x"), (1, b"one more", b"x")]
        produce(deployment.bootstrap, deployment.topic, dirty)
        ends = end_offsets(deployment.bootstrap, deployment.topic)
        wait_until(lambda: deployment.published() == ends, "they are published", 60)
        assert not folded(deployment)
        worker, connector = load_worker(deployment.folder / "worker.json"), deployment.config()
        done = clean(worker, connector, deployment.topic, 1)
        assert [(one.partition, one.end) for one in done] == [(1, ends[1])]
        assert done[0].records_before == done[0].records
        assert not release(worker, connector, deployment.topic, 0)
        (taken,) = snapshot(worker, connector)
        assert folded(deployment)
        assert taken.records == sum(
            log.base.records - log.base.tombstones for log in deployment.state().logs if log.base
        )
    assert deployment.violations() == []
