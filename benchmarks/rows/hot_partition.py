"""A backlog of which one partition of ten has 90 %, beside one that all ten share: from the command to its end."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.harness.datasets import DataSet, filled_topic, scale
from benchmarks.harness.process import running
from benchmarks.harness.row import Measurement
from benchmarks.peers.keyfold import command_on, running_worker

EVEN: Final = DataSet(name="even", records=4_000_000, keys=400_000, partitions=10)
HOT: Final = DataSet(name="hot", records=4_000_000, keys=400_000, partitions=10, hot=0.9)
_ROUNDS: Final = 3


def hot_partition(bootstrap: str) -> dict[str, float]:
    """Measures seconds of `run --once` and of `clean` behind it, by turns on both backlogs."""
    topics = {data.name: filled_topic(bootstrap, data.scaled(scale())) for data in (EVEN, HOT)}
    took: dict[str, list[float]] = {}
    for _ in range(_ROUNDS):
        for name, topic in topics.items():
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                with running_worker(bootstrap, topic, folder, once=True) as worker:
                    took.setdefault(f"{name}: run --once, s", []).append(worker.running.wait())
                began = time.monotonic()
                with running(command_on("clean", folder, worker.name), folder / "clean.log") as command:
                    command.wait()
                took.setdefault(f"{name}: clean, s", []).append(time.monotonic() - began)
    found = {name: statistics.median(seconds) for name, seconds in took.items()}
    return {
        "hot over even, run --once": found["hot: run --once, s"] / found["even: run --once, s"],
        "hot over even, clean": found["hot: clean, s"] / found["even: clean, s"],
        **found,
    }


HOT_PARTITION: Final = Measurement(
    "hot-partition",
    "4 million records, 90 % of them in one partition of ten, beside as many that all share",
    {"hot over even, run --once": (1.5, 1.1), "hot over even, clean": (1.5, 1.1)},
    hot_partition,
)
