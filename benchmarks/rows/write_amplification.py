"""Write amplification: bytes written per byte ingested in a day of steady load on a simulated clock.

Micro-batches are written without Spark, as level-0 files like those of ingest; merges and full folds run on Spark.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.harness.row import Measurement
from benchmarks.rows.brokerless import LEVEL0, BrokerlessConnector
from benchmarks.rows.steady_load import MINUTE_MS, SteadyLoad
from compactor.clean.cleaner import Cleaner
from compactor.clean.rewriter import Rewriter
from compactor.metrics import Counters
from compactor.quarantine.quarantine import QuarantineManager
from compactor.settings import CompactionPolicy, EngineSettings
from compactor.storage.base import FileInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTES: Final = 24 * 60
LOAD: Final = SteadyLoad(records=2_000, keys=100_000)


def write_amplification(_bootstrap: str = "", minutes: int = MINUTES) -> dict[str, float]:
    """Measures bytes of all run files ever written over those of level 0, and their parts."""
    from connectors.spark.session import get_session

    with tempfile.TemporaryDirectory() as folder:
        spark = get_session("local[*]", {})
        found = measure(spark, Path(folder), minutes)
        spark.stop()
        return found


def measure(spark: SparkSession, folder: Path, minutes: int) -> dict[str, float]:
    """Appends a micro-batch a minute, each followed by rounds of the cleaner until one has nothing to do.

    Nothing is vacuumed, so that runs/ has all files ever written.
    """
    policy = CompactionPolicy()
    connector = BrokerlessConnector(folder, LOAD.partitions, 0)
    settings, counters = EngineSettings(connector="bench", policy=policy), Counters()
    quarantine = QuarantineManager(connector.catalog, threading.Event())
    rewriter = Rewriter(spark, connector.storage)
    cleaner = Cleaner(rewriter, connector.catalog, quarantine, settings, counters, frozenset)
    ingested = 0
    for number, tables in enumerate(LOAD.tables(minutes)):
        now_ms = (number + 1) * MINUTE_MS
        parts = connector.write(tables, policy.segment_bytes, now_ms)
        ingested += sum(part.file.bytes for part in parts)
        connector.append(parts, dict.fromkeys(range(LOAD.partitions), (number + 1) * LOAD.partition_records), now_ms)
        connector.publish(now_ms)
        while cleaner.round(now_ms):
            pass
    sums = by_origin(connector.storage.walk("runs"))
    counted = counters.values()
    return {
        "written over ingested": sum(sums.values()) / sums["level 0"],
        "level 0, bytes": sums["level 0"],
        "merges and full folds, bytes": sums["rewritten"],
        "records, uncompressed bytes": ingested,
        "full folds": counted["full_folds"],
        "merges": counted["merges"],
    }


def by_origin(files: Iterable[FileInfo]) -> dict[str, int]:
    """Returns the bytes of level-0 files and of files that merges and full folds wrote."""
    sums = {"level 0": 0, "rewritten": 0}
    for file in files:
        job = file.path.rpartition("/")[2].split("-")[1]
        sums["level 0" if job.startswith(LEVEL0) else "rewritten"] += file.bytes
    return sums


WRITTEN: Final = Measurement(
    "written",
    "bytes of runs written per byte ingested, dirty ratio 0.5, 24 h of steady load",
    {"written over ingested": (3, 1.5)},
    write_amplification,
    broker=False,
)
