"""Starts the streaming query of a worker: the source in, every micro-batch out to a function."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from compactor.ingest.ingest import WRITTEN
from compactor.model.record import ddl
from connectors.source.datasource import NAME, Address, KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(spark: SparkSession, address: Address, checkpoint: str, take: Callable[[DataFrame], None]) -> StreamingQuery:
    """Starts the query; `take` is called with each micro-batch, on a thread of Spark's.

    A micro-batch begins as soon as the one before it has ended and the driver at `address` has planned it. `checkpoint`
    is the URL of an empty folder, for Spark alone: nothing is ever read from it again.
    """
    writer = load(spark, address).writeStream.foreachBatch(lambda batch, _: take(batch)).options(**_PROGRESS)
    return writer.option("checkpointLocation", checkpoint).start()


def load(spark: SparkSession, address: Address) -> DataFrame:
    """Returns the stream of what the driver at `address` plans: `WRITTEN` of compactor/ingest/ingest.py."""
    _register(spark)
    source = spark.readStream.format(NAME).schema(ddl(WRITTEN))
    return source.option("socket", address.path).option("secret", address.key).load()


def _register(spark: SparkSession) -> None:
    """Registers the source with `spark`, once, as the only one in Python."""
    with _registering:
        if spark not in _registered:
            _look_for_no_others(spark)
            spark.dataSource.register(KafkaSource)
            _registered.add(spark)


def _look_for_no_others(spark: SparkSession) -> None:
    """Tells Spark that no other Python sources are installed; it would start a process to look for them, 0.45 s.

    Nothing public says so: this is a variable of Spark's `DataSourceManager`, which its own tests set. A Spark without
    that variable looks for them.
    """
    with suppress(Exception):
        java = spark._jvm.java.lang.Class  # type: ignore[union-attr]
        manager, maps = (java.forName(name).getField("MODULE$").get(None) for name in (_MANAGER, _MAP))
        getattr(manager, "dataSourceBuilders_$eq")(spark._jvm.scala.Option.apply(maps.empty()))  # type: ignore[union-attr]


_MANAGER: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager$"
_MAP: Final = "scala.collection.immutable.Map$"
_PROGRESS: Final = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "60000",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
"""Spark writes its record of progress once a minute, while the query runs: two files for each micro-batch took 100 ms.
Spark allows that for its Kafka sink only, as another sink might trust that record. This one never reads it."""
_registering: Final = threading.Lock()
_registered: Final[WeakSet[SparkSession]] = WeakSet()
