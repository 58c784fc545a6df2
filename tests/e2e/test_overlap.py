"""A micro-batch that comes again, or overlaps what was taken: by offset, each record once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from compactor.errors import GapError
from compactor.ingest.ingest import Intake
from connectors.source.datasource import KafkaSource
from connectors.source.intake import encode
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
    spark.dataSource.register(KafkaSource)
    document = {deployment.topic: {"id": topic_id, "partitions": dict(starts)}}
    return (
        spark.read.format("keyfold")
        .options(
            **{
                "connector": deployment.name,
                "consumer.config": json.dumps({"bootstrap.servers": deployment.bootstrap}),
                "topics": json.dumps([deployment.topic]),
                "starts": json.dumps(document),
                "intake": encode(intake),
            }
        )
        .load()
    )


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
