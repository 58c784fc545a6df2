"""Starts the streaming query of a worker: the source in, every micro-batch out to whoever takes it.

On its own because the class archives' training and tests start a stream without a worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from connectors.source.datasource import NAME, KafkaSource
from connectors.source.driver_link import Address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(spark: SparkSession, address: Address, checkpoint: str, take: Callable[[DataFrame], None]) -> StreamingQuery:
    """Starts the query; `take` is called with each micro-batch, on a thread of Spark's.

    A micro-batch begins as soon as the one before it has ended and the driver at `address` has planned it. `checkpoint`
    is the URL of an empty folder, for Spark alone: nothing is ever read from it again.
    """
    register(spark)
    frame = spark.readStream.format(NAME).option("socket", address.path).option("secret", address.key).load()
    writer = frame.writeStream.foreachBatch(lambda batch, _: take(batch)).options(**_PROGRESS)
    return writer.option("checkpointLocation", checkpoint).start()


def register(spark: SparkSession) -> None:
    """Registers the source with `spark`, once: the first time, Spark looks through Python for sources for a second."""
    with _registering:
        if spark not in _registered:
            spark.dataSource.register(KafkaSource)
            _registered.add(spark)


_PROGRESS: Final = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "60000",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
"""Spark writes its record of progress once a minute, beside the query: two files for each micro-batch took 100 ms.

Spark allows that for its Kafka sink only, as another sink might trust that record. This one does not: nobody goes on
from it.
"""
_registering: Final = threading.Lock()
_registered: Final[WeakSet[SparkSession]] = WeakSet()
