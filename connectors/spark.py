"""The worker's one SparkSession: pip's PySpark, no JAR added, Arrow between the JVM and Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS: Final[dict[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Spark measures a batch's bytes at each row, over all its nested columns: small batches are 5 to 14 times faster.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # Above this many files Spark would list them in a job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
    "spark.ui.showConsoleProgress": "false",
}

PINNED: Final[dict[str, tuple[str, str]]] = {
    "spark.speculation": ("false", "two attempts of one publish task would fence each other"),
    "spark.scheduler.mode": ("FAIR", "a full fold must not hold all slots"),
}
"""Settings that keyfold's protocol needs, each with the reason."""


def session(master: str, overrides: Mapping[str, str]) -> SparkSession:
    """The running session, or a new one on `master`; `overrides` are the worker file's spark.* keys.

    The Python of Spark's workers is this process's own: another one would lack keyfold's packages.
    """
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    _listen_locally(master)
    builder = SparkSession.builder.master(master).appName("keyfold")
    pinned = {key: value for key, (value, _) in PINNED.items()}
    for key, value in {**DEFAULTS, **overrides, **pinned}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _listen_locally(master: str) -> None:
    """A local master needs nobody from outside; a host name that does not resolve must not stop it."""
    if master.startswith(("local[", "local-cluster[")) or master == "local":
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def cores(spark: SparkSession) -> int:
    """How many tasks run at once: the default of `tasks.max`."""
    return max(1, spark.sparkContext.defaultParallelism)
