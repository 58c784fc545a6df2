"""A high rate for minutes: whether freshness and memory stay what they are."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness.datasets import DataSet, filled_topic, scale
from benchmarks.harness.row import Measurement
from benchmarks.harness.steady import Load
from benchmarks.harness.watch import MIB, Sample, Subject, Watched, watch
from benchmarks.peers.keyfold import running_connectors

MINUTES: Final = "BENCH_MINUTES"
"""Environment variable with the minutes of each window; children inherit it."""
PARTITIONS: Final = 10
KEYS: Final = 1_000_000
FIRST: Final = DataSet(name="sustained", records=PARTITIONS, keys=PARTITIONS, partitions=PARTITIONS)
SETTLE_S: Final = 30.0
"""Before a window; as long as the window where that is shorter."""
LAG_MS: Final = 30_000
PARTS: Final = 3


def minutes() -> float:
    """Returns the minutes of each window."""
    return float(os.environ.get(MINUTES, "10"))


def sustained(bootstrap: str, rate: float, lag_ms: int = 0) -> dict[str, float]:
    """Measures seconds from creation to visible, and memory over time, at `rate` records/s over KEYS keys."""
    found = _watched(bootstrap, rate * min(1.0, scale()), lag_ms)
    return {
        **found.values(),
        "minutes": minutes(),
        **{f"p50 in third {part + 1}, s": found.part(part, PARTS).percentile(0.5) for part in range(PARTS)},
        **memory(found.samples),
    }


def memory(samples: Sequence[Sample]) -> dict[str, float]:
    """Returns the RSS of the window's beginning, middle and end, and how it grows in the window's second half."""
    late = samples[len(samples) // 2 :]
    growth = 0.0
    if len(late) > 1:
        growth = statistics.linear_regression([one.seconds for one in late], [one.rss for one in late]).slope
    places = {"at first": samples[0], "in the middle": late[0], "at the end": samples[-1]}
    return {
        **{f"RSS {name}, MiB": sample.rss / MIB for name, sample in places.items()},
        "RSS growth in the second half, MiB/min": growth * 60 / MIB,
    }


def _watched(bootstrap: str, rate: float, lag_ms: int) -> Watched:
    """Watches a new worker with one connector on a new topic."""
    topic = filled_topic(bootstrap, FIRST)
    load = Load(topics=(topic,), partitions=PARTITIONS, rate=rate, keys=KEYS)
    settings = {"min.compaction.lag.ms": str(lag_ms)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with running_connectors(bootstrap, [topic], folder, settings) as worker:
            worker.until_published()
            subject = Subject(worker.running, bootstrap, worker.outputs, worker.published)
            window_s = 60 * minutes()
            return watch(subject, load, folder / "signals", min(SETTLE_S, window_s) + lag_ms / 1000, window_s)


def _row(name: str, rate: float, lag_ms: int = 0) -> Measurement:
    lag = f", min.compaction.lag.ms={lag_ms}" if lag_ms else ""
    what = f"sustained {rate:,.0f} records/s{lag}"
    return Measurement(name, what, {}, partial(sustained, rate=rate, lag_ms=lag_ms))


SUSTAINED: Final = (
    _row("sustained-30k", 30_000),
    _row("sustained-80k", 80_000),
    _row("sustained-lag", 30_000, LAG_MS),
)
