"""Whether commits stay quick: 10,000 micro-batches into one catalog, its runs replaced as a worker replaces them."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.harness.figure import Figure, percentile
from benchmarks.rows.kept import TOPIC, Kept
from benchmarks.rows.modelled import Model
from compactor.runs.file_stats import FileStats

BATCHES: Final = 10_000
PARTITIONS: Final = 4
RECORDS: Final = 1_000
"""Of each partition in each micro-batch."""
KEYS: Final = 50_000
"""Of each partition."""
BATCH_MS: Final = 1_000
CLEANER_EVERY: Final = 15
"""Micro-batches between two rounds of the cleaner: log.cleaner.backoff.ms."""
_PART: Final = 100
"""So many micro-batches are compared at either end."""


def catalog(_bootstrap: str = "", batches: int = BATCHES) -> dict[str, float]:
    """Milliseconds of a micro-batch's three commits: medians at both ends, their ratio, and 99th percentiles."""
    took = run(batches)
    size = min(_PART, max(1, batches // 2))
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
    """Seconds in the catalog of each micro-batch: Append, PlanFold, Publish, checkpoints and trims among them.

    No file is written but the catalog's. The cleaner's commits come between micro-batches and are not counted.
    """
    began_ms = time.time_ns() // 1_000_000  # trims hold the time against that of real files
    with tempfile.TemporaryDirectory() as folder:
        kept, model = Kept(Path(folder), PARTITIONS, began_ms), Model(TOPIC, KEYS)
        took: list[float] = []
        for number in range(batches):
            now_ms = began_ms + number * BATCH_MS
            took.append(_commit(kept, model.parts(number, PARTITIONS, RECORDS), (number + 1) * RECORDS, now_ms))
            if number % CLEANER_EVERY == CLEANER_EVERY - 1:
                model.clean(kept.catalog, now_ms)
        return took


def _commit(kept: Kept, parts: Sequence[FileStats], end: int, now_ms: int) -> float:
    ends = dict.fromkeys(range(PARTITIONS), end)
    began = time.perf_counter()
    kept.append(parts, ends, now_ms)
    kept.publish(now_ms)
    return time.perf_counter() - began


CATALOG: Final = Figure(
    "catalog", f"catalog commits after {BATCHES:,} micro-batches", {"last over first": (2, 1.2)}, catalog, broker=False
)
