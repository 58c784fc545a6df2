"""cleanup.policy=delete: keyfold as a raw copy with retention, which publishes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compactor.runs.reader import read
from compactor.runs.scan import whole
from connectors.config.engine import connector_storage
from connectors.config.files import load_worker
from tests.support.kafka import consume_all, produce
from tests.support.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_raw_copy_keeps_every_record_until_it_is_too_old(spark: SparkSession, place: Place) -> None:
    """Every record is kept, also without a key, and none twice after a restart; old ones go by retention.ms."""
    for key in ("snapshot.location", "errors.deadletterqueue.topic.replication.factor"):
        del place.settings[key]
    place.settings |= {"cleanup.policy": "delete", "output.topic": "none", "retention.ms": 3_600_000}
    produce(place.bootstrap, place.topic, [(0, b"a", b"1"), (0, None, b"no key"), (0, b"a", b"2"), (1, b"a", None)])
    place.once(spark)
    produce(place.bootstrap, place.topic, [(1, b"b", b"3")])
    state = place.once(spark)
    storage = connector_storage(load_worker(place.folder / "worker.json"), place.name)
    kept = [
        (one["partition"], one["offset"], one["key"], one["value"])
        for log in state.logs
        for batch in read(storage, whole(log))
        for one in batch.to_pylist()
    ]
    source = [(one.partition, one.offset, one.key, one.value) for one in consume_all(place.bootstrap, place.topic)]
    assert sorted(kept, key=lambda one: one[:2]) == sorted(source, key=lambda one: one[:2])
    assert all(topic.output is None for topic in state.topics.values())
    expired = place.once(spark, retention_ms=0)
    assert [(log.start, log.end) for log in expired.logs] == [(log.end, log.end) for log in state.logs]
