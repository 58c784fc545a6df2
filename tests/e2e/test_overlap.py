"""A micro-batch that comes again, or overlaps what was taken: by offset, each record once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from compactor.errors import GapError
from compactor.ingest.appends import Batch
from compactor.ingest.ingest import Intake, portions, write_level0
from connectors.clock import SystemClock
from connectors.kafka.admin import Admin
from connectors.source import plan
from connectors.source.plan import TopicOffsets
from connectors.source.planner import Planner
from connectors.source.reader import read
from connectors.source.topics import SourceTopics
from tests.support.deployment import Deployment
from tests.support.kafka import end_offsets, produce
from tests.support.records import random_records
from tests.support.source_options import source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_MS = 1_800_000_000_000


def batch(deployment: Deployment, topic_id: str, starts: Mapping[int, int], intake: Intake) -> Batch:
    """Everything from `starts` to the partitions' ends, as the streaming query would bring it."""
    position = {deployment.topic: TopicOffsets(topic_id, dict(starts))}
    given = {"bootstrap.servers": deployment.bootstrap}
    options = source_options(given, [deployment.topic], connector=deployment.name, starts=position)
    topics = SourceTopics(deployment.name, Admin(options.clients.admin()))
    planner = Planner(options, topics)
    planner.pin()
    start = planner.initial()
    splits = plan.splits(plan.ranges(deployment.name, start, planner.latest(start, None)), 2)
    of_batch = intake.of_batch(1, SystemClock().now_ms())
    rows = [found for split in splits for found in write_level0(read(split, options), of_batch)]
    (found,) = portions(row for one in rows for row in one.to_pylist()).values()
    assert isinstance(found, Batch)
    return found


def test_overlapping_batches_are_taken_by_offset(spark: SparkSession, deployment: Deployment) -> None:
    """The same batch twice changes nothing, one that overlaps adds its suffix, one that leaves a gap is refused."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, 120))
    with ExitStack() as stack:
        catalog, _, engine, *_ = deployment.task(spark, bootstrap_fold_enable="false").take_over(
            stack, deployment.drawn_start(), 2
        )
        stack.callback(deployment.lock.release)
        topic_id = catalog.state.topics[deployment.topic].topic_id
        engine.take(batch(deployment, topic_id, {0: 0, 1: 0}, engine.intake), NOW_MS)
        taken = catalog.state
        engine.take(batch(deployment, topic_id, {0: 0, 1: 0}, engine.intake), NOW_MS)
        assert [log.runs for log in catalog.state.logs] == [log.runs for log in taken.logs]
        produce(deployment.bootstrap, deployment.topic, random_records(2, 80))
        engine.take(batch(deployment, topic_id, {0: 7, 1: 9}, engine.intake), NOW_MS)
        assert {log.partition: log.end for log in catalog.state.logs} == end_offsets(
            deployment.bootstrap, deployment.topic
        )
        assert deployment.violations() == []
        produce(deployment.bootstrap, deployment.topic, random_records(3, 80))
        beyond = {partition: end - 5 for partition, end in end_offsets(deployment.bootstrap, deployment.topic).items()}
        with pytest.raises(GapError, match="missing"):
            engine.take(batch(deployment, topic_id, beyond, engine.intake), NOW_MS)
