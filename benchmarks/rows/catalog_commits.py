"""Time of commits in a catalog of 10,000 micro-batches whose runs are replaced as the cleaner would."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.harness.results import percentile
from benchmarks.harness.row import Measurement
from benchmarks.rows.brokerless import TOPIC, BrokerlessConnector
from benchmarks.rows.cleaner_model import CleanerModel
from compactor.runs.file_stats import FileStats

BATCHES: Final = 10_000
PARTITIONS: Final = 4
RECORDS: Final = 1_000
"""New records of each partition in each micro-batch."""
KEYS: Final = 50_000
"""Keys of each partition."""
BATCH_MS: Final = 1_000
CLEANER_EVERY: Final = 15
"""Micro-batches between two rounds of the cleaner, as by log.cleaner.backoff.ms."""
_COMPARED: Final = 100
"""Micro-batches at either end whose medians are compared."""


def catalog_commits(_bootstrap: str = "", batches: int = BATCHES) -> dict[str, float]:
    """Measures milliseconds of a micro-batch's three commits: medians at both ends, their ratio, 99th percentiles."""
    took = run(batches)
    size = min(_COMPARED, max(1, batches // 2))
    first, last = took[:size], took[-size:]
    before, after = statistics.median(first), statistics.median(last)
    return {
        "last over first": after / before,
        "first, ms": before * 1000,
        "last, ms": after * 1000,
        "first p99, ms": percentile(first, 0.99) * 1000,
        "last p99, ms": percentile(last, 0.99) * 1000,
        "p99, ms": percentile(took, 0.99) * 1000,
    }


def run(batches: int) -> list[float]:
    """Returns the seconds of each micro-batch's commits: Append, PlanFold, Publish, with checkpoints and trims.

    Only the catalog's files are written. The cleaner's commits come between micro-batches and do not count.
    """
    began_ms = time.time_ns() // 1_000_000  # trims compare it with the times of real files
    with tempfile.TemporaryDirectory() as folder:
        connector, model = BrokerlessConnector(Path(folder), PARTITIONS, began_ms), CleanerModel(TOPIC, KEYS)
        took: list[float] = []
        for number in range(batches):
            now_ms = began_ms + number * BATCH_MS
            parts = model.parts(number, PARTITIONS, RECORDS)
            took.append(_commit(connector, parts, (number + 1) * RECORDS, now_ms))
            if number % CLEANER_EVERY == CLEANER_EVERY - 1:
                model.clean(connector.catalog, now_ms)
        return took


def _commit(connector: BrokerlessConnector, parts: Sequence[FileStats], end: int, now_ms: int) -> float:
    ends = dict.fromkeys(range(PARTITIONS), end)
    began = time.perf_counter()
    connector.append(parts, ends, now_ms)
    connector.publish(now_ms)
    return time.perf_counter() - began


CATALOG: Final = Measurement(
    "catalog",
    f"catalog commits after {BATCHES:,} micro-batches",
    {"last over first": (2, 1.2)},
    catalog_commits,
    broker=False,
)
