"""Starts one connector's streaming query: options from its configuration, micro-batches to its engine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from compactor.ingest import ingest
from compactor.model.state import CatalogState
from connectors.config.connector import ConnectorConfig
from connectors.kafka.client_settings import ClientSettings
from connectors.source.datasource import KafkaSource
from connectors.source.offsets import TopicOffsets, encode
from connectors.source.options import encode_intake
from connectors.source.source_errors import left_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(
    spark: SparkSession,
    options: dict[str, str],
    checkpoint: str,
    take: Callable[[DataFrame], None],
    interval_ms: int | None,
) -> StreamingQuery:
    """Starts the query; `take` is called with each micro-batch and must have taken it when it returns.

    Without `interval_ms`, the shortest time between two batches, the query ends when it has taken what was stable
    at its start (Trigger.AvailableNow).
    """
    register(spark)
    frame = spark.readStream.format("keyfold").options(**options).load()
    writer = frame.writeStream.foreachBatch(lambda batch, _: take(batch)).option("checkpointLocation", checkpoint)
    if interval_ms is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval_ms} milliseconds").start()


def register(spark: SparkSession) -> None:
    """Registers the source with `spark`, once: the first time, Spark looks through Python for sources for a second."""
    with _registering:
        if spark not in _registered:
            spark.dataSource.register(KafkaSource)
            _registered.add(spark)


_registering: Final = threading.Lock()
_registered: Final[WeakSet[SparkSession]] = WeakSet()


def source_options(
    connector: ConnectorConfig, clients: ClientSettings, state: CatalogState, tasks_max: int, intake: ingest.Intake
) -> dict[str, str]:
    """Makes the options of the source (options.py); positions begin where the catalog ends."""
    options = {
        "connector": connector.name,
        "consumer.config": json.dumps(clients.consumer()),
        "admin.config": json.dumps(clients.admin()),
        "starts": json.dumps(encode(starts(state))),
        "closed": json.dumps([name for name, topic in state.topics.items() if topic.closed is not None]),
        "tasks.max": str(tasks_max),
        "on.data.loss": connector.on_data_loss,
        "intake": encode_intake(intake),
        **_selection(connector, left_out(state)),
    }
    if connector.max_offsets_per_trigger is not None:
        options["max.offsets.per.trigger"] = str(connector.max_offsets_per_trigger)
    return options


def starts(state: CatalogState) -> dict[str, TopicOffsets]:
    """Returns the next offset to read of every partition, of closed topics too: one that is back goes on from there."""
    return {
        name: TopicOffsets(topic.topic_id, {log.partition: log.end for log in state.logs if log.topic == name})
        for name, topic in state.topics.items()
    }


def _selection(connector: ConnectorConfig, closed: frozenset[str]) -> dict[str, str]:
    """Makes the options that name what is read: never the topics `closed`."""
    if connector.topics is not None:
        return {"topics": json.dumps([name for name in connector.topics if name not in closed])}
    dead = {connector.dead_letter_topic} if connector.dead_letter_topic else set()
    return {
        "topics.regex": connector.topics_regex or "",
        "output.topic": connector.output_topic_template,
        "exclude": json.dumps(sorted(dead | closed)),
    }
