"""cleanup.policy=delete: keyfold as a raw copy with retention, which publishes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compactor.runs.reader import read
from compactor.runs.scan import whole
from connectors.config.files import load_worker
from connectors.config.stores import connector_storage
from tests.support.deployment import Deployment
from tests.support.kafka import consume_all, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_raw_copy_keeps_every_record_until_it_is_too_old(spark: SparkSession, deployment: Deployment) -> None:
    """Every record is kept, also without a key, and none twice after a restart; old ones go by retention.ms."""
    for key in ("snapshot.location", "errors.deadletterqueue.topic.replication.factor"):
        del deployment.settings[key]
    deployment.settings |= {"cleanup.policy": "delete", "output.topic": "none", "retention.ms": 3_600_000}
    produce(
        deployment.bootstrap,
        deployment.topic,
        [(0, b"a", b"1"), (0, None, b"no key"), (0, b"a", b"2"), (1, b"a", None)],
    )
    deployment.run_once(spark)
    produce(deployment.bootstrap, deployment.topic, [(1, b"b", b"3")])
    state = deployment.run_once(spark)
    storage = connector_storage(load_worker(deployment.folder / "worker.json"), deployment.name)
    kept = [
        (one["partition"], one["offset"], one["key"], one["value"])
        for log in state.logs
        for batch in read(storage, whole(log))
        for one in batch.to_pylist()
    ]
    source = [
        (one.partition, one.offset, one.key, one.value) for one in consume_all(deployment.bootstrap, deployment.topic)
    ]
    assert sorted(kept, key=lambda one: one[:2]) == sorted(source, key=lambda one: one[:2])
    assert all(topic.output is None for topic in state.topics.values())
    expired = deployment.run_once(spark, retention_ms=0)
    assert [(log.start, log.end) for log in expired.logs] == [(log.end, log.end) for log in state.logs]
