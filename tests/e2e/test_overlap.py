"""A micro-batch that comes again, or overlaps what was taken: by offset, each record once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from compactor.errors import GapError
from compactor.ingest.ingest import WRITTEN, Intake, write_level0
from connectors.clock import SystemClock
from connectors.kafka.admin import Admin
from connectors.source import plan
from connectors.source.options import parse
from connectors.source.planner import Planner
from connectors.source.reader import read
from connectors.source.source_topics import AdminTopics
from tests.support.clients import source_clients
from tests.support.deployment import Deployment
from tests.support.kafka import end_offsets, produce
from tests.support.records import random_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW_MS = 1_800_000_000_000


def batch(
    spark: SparkSession, deployment: Deployment, topic_id: str, starts: Mapping[int, int], intake: Intake
) -> DataFrame:
    """Everything from `starts` to the partitions' ends, as the streaming query would bring it."""
    document = {deployment.topic: {"id": topic_id, "partitions": dict(starts)}}
    named = {"topics": json.dumps([deployment.topic]), "starts": json.dumps(document)}
    clients = source_clients({"bootstrap.servers": deployment.bootstrap})
    options = parse({"connector": deployment.name, **named, **clients})
    topics = AdminTopics(deployment.name, Admin(options.clients.admin()))
    planner = Planner(options, topics)
    planner.pin()
    start = planner.initial()
    splits = plan.splits(plan.ranges(deployment.name, start, planner.latest(start, None)), 2)
    of_batch = intake.of_batch(1, SystemClock().now_ms())
    rows = [found for split in splits for found in write_level0(read(split, options), of_batch)]
    return spark.createDataFrame(pa.Table.from_batches(rows, WRITTEN))


def test_overlapping_batches_are_taken_by_offset(spark: SparkSession, deployment: Deployment) -> None:
    """The same batch twice changes nothing, one that overlaps adds its suffix, one that leaves a gap is refused."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, 120))
    with ExitStack() as stack:
        catalog, _, engine, *_ = deployment.task(spark, bootstrap_fold_enable="false").take_over(stack)
        topic_id = catalog.state.topics[deployment.topic].topic_id
        engine.take(batch(spark, deployment, topic_id, {0: 0, 1: 0}, engine.intake), NOW_MS)
        taken = catalog.state
        engine.take(batch(spark, deployment, topic_id, {0: 0, 1: 0}, engine.intake), NOW_MS)
        assert [log.runs for log in catalog.state.logs] == [log.runs for log in taken.logs]
        produce(deployment.bootstrap, deployment.topic, random_records(2, 80))
        engine.take(batch(spark, deployment, topic_id, {0: 7, 1: 9}, engine.intake), NOW_MS)
        assert {log.partition: log.end for log in catalog.state.logs} == end_offsets(
            deployment.bootstrap, deployment.topic
        )
        assert deployment.violations() == []
        produce(deployment.bootstrap, deployment.topic, random_records(3, 80))
        beyond = {partition: end - 5 for partition, end in end_offsets(deployment.bootstrap, deployment.topic).items()}
        with pytest.raises(GapError, match="missing"):
            engine.take(batch(spark, deployment, topic_id, beyond, engine.intake), NOW_MS)
