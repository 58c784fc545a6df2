"""Erases without a live worker: this process runs the connector once, then carries the request out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compactor.catalog.owner_lock import OwnerLock
from compactor.catalog.requests import Request
from connectors.clock import SYSTEM_CLOCK
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.progress.observer import Observer
from connectors.runtime.connector_task import ConnectorTask
from connectors.runtime.shared_query import SharedQuery
from connectors.runtime.stop import Stop
from connectors.runtime.takeover import draw_start
from connectors.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUERY_S = 10.0
"""How long the query may take to end; after that Spark is closed all the same."""


def run_and_erase(worker: WorkerConfig, connector: ConnectorConfig, wanted: Request, lock: OwnerLock) -> dict[str, Any]:
    """Reads and publishes all that the source has, as `keyfold run --once`, so that the tombstones are ingested.

    Then it carries `wanted` out. `lock` is held. Raises what a run of the connector raises.
    """
    spark = session.get_session(worker.spark_master, worker.spark_settings, worker.executors_package)
    try:
        _run_once(spark, worker, connector, lock)
        return _task(spark, worker, connector, lock).perform(wanted, draw_start(worker))
    finally:
        spark.stop()


def _run_once(spark: SparkSession, worker: WorkerConfig, connector: ConnectorConfig, lock: OwnerLock) -> None:
    query = SharedQuery(spark, SYSTEM_CLOCK, connectors=1)
    query.start(prepares=False)
    try:
        _task(spark, worker, connector, lock).run(Stop(), query, once=True, start=draw_start(worker))
    finally:
        query.begin_stop()
        query.stop(_QUERY_S)


def _task(spark: SparkSession, worker: WorkerConfig, connector: ConnectorConfig, lock: OwnerLock) -> ConnectorTask:
    return ConnectorTask(spark, worker, connector, SYSTEM_CLOCK, Observer(), lambda _: None, lock)
