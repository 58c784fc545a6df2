"""How many bytes keyfold writes for a byte taken in: a day of steady load on a simulated clock.

Micro-batches are taken in without Spark, as level-0 files that are just like ingest's; merges and
full folds are the product's own, on Spark.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.harness.figure import Figure
from benchmarks.rows.kept import LEVEL0, Kept
from benchmarks.rows.steady import MINUTE_MS, Steady
from compactor.clean.cleaner import Cleaner
from compactor.clean.rewriter import Rewriter
from compactor.metrics import Counters
from compactor.quarantine.quarantine import QuarantineManager
from compactor.settings import CompactionPolicy, EngineSettings
from compactor.storage.base import FileInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTES: Final = 24 * 60
LOAD: Final = Steady(records=2_000, keys=100_000)


def written(_bootstrap: str = "", minutes: int = MINUTES) -> dict[str, float]:
    """Bytes of all files of runs ever written over those of level 0 among them; and what makes them up."""
    from connectors.spark.session import session

    with tempfile.TemporaryDirectory() as folder:
        spark = session("local[*]", {})
        found = measure(spark, Path(folder), minutes)
        spark.stop()
        return found


def measure(spark: SparkSession, folder: Path, minutes: int) -> dict[str, float]:
    """A micro-batch a minute, each followed by the cleaner's rounds for as long as they do anything.

    Nothing is vacuumed, so what lies below runs/ at the end is all that was ever written.
    """
    policy = CompactionPolicy()
    kept = Kept(folder, LOAD.partitions, 0)
    settings, counters = EngineSettings(connector="bench", policy=policy), Counters()
    quarantine = QuarantineManager(kept.catalog, threading.Event())
    cleaner = Cleaner(Rewriter(spark, kept.storage), kept.catalog, quarantine, settings, counters, frozenset)
    taken = 0
    for number, tables in enumerate(LOAD.tables(minutes)):
        now_ms = (number + 1) * MINUTE_MS
        parts = kept.write(tables, policy.segment_bytes, now_ms)
        taken += sum(part.file.bytes for part in parts)
        kept.append(parts, dict.fromkeys(range(LOAD.partitions), (number + 1) * LOAD.each), now_ms)
        kept.publish(now_ms)
        while cleaner.round(now_ms):
            pass
    sums = by_origin(kept.storage.walk("runs"))
    counted = counters.values()
    return {
        "written over ingested": sum(sums.values()) / sums["level 0"],
        "level 0, bytes": sums["level 0"],
        "merges and full folds, bytes": sums["rewritten"],
        "records, uncompressed bytes": taken,
        "full folds": counted["full_folds"],
        "merges": counted["merges"],
    }


def by_origin(files: Iterable[FileInfo]) -> dict[str, int]:
    """The bytes of run files: those that took micro-batches in, and those that replaced others."""
    sums = {"level 0": 0, "rewritten": 0}
    for file in files:
        job = file.path.rpartition("/")[2].split("-")[1]
        sums["level 0" if job.startswith(LEVEL0) else "rewritten"] += file.bytes
    return sums


WRITTEN: Final = Figure(
    "written",
    "bytes of runs written per byte ingested, dirty ratio 0.5, 24 h of steady load",
    {"written over ingested": (3, 1.5)},
    written,
    broker=False,
)
