"""What a round of the cleaner and a commit decide about a terabyte of runs, 10,000 a partition: by metadata alone."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Final

from benchmarks.harness.row import Measurement
from compactor.catalog.commits import Checkpoint, checkpoint_path, encode
from compactor.clean import retention, schedule, tiers
from compactor.model.log import PartitionLog, Run, RunFile
from compactor.model.log_transitions import check_invariants
from compactor.model.state import CatalogState
from compactor.settings import CompactionPolicy, FoldPolicy
from compactor.storage.locations import open_storage

RUNS: Final = 10_000
TERABYTE: Final = 10**12
_OFFSETS: Final = 1_000
_REPEATS: Final = 5
_ALL: Final = 1 << 62
"""More bytes than any job takes, so that every log is looked at until the end."""


def decisions(_bootstrap: str = "", partitions: int = 10) -> dict[str, float]:
    """Measures seconds of what a round decides, and of a checkpoint, on RUNS runs in each of `partitions`."""
    logs = tuple(_log(number, TERABYTE // partitions // RUNS) for number in range(partitions))
    state = CatalogState(connector="c", logs=logs)
    with tempfile.TemporaryDirectory() as folder:
        storage = open_storage(folder)

        def checkpoint(number: int) -> None:
            made = Checkpoint(format=1, version=number, epoch=1, at_ms=0, commit_id="", state=state)
            assert storage.create(checkpoint_path(number), encode(made))

        return {
            "decisions of a round, s": _median(lambda _: _decide(logs)),
            "a checkpoint of the catalog, s": _median(checkpoint),
        }


def _decide(logs: tuple[PartitionLog, ...]) -> None:
    """Decides what `compactor.clean.cleaner.Cleaner.round` decides; nothing is read or written."""
    policy, fold, now_ms = CompactionPolicy(), FoldPolicy(), _OFFSETS * RUNS
    retention.expiring(logs, policy, now_ms, ())
    found = schedule.evaluate_all(logs, policy, fold, now_ms, {})
    picked = schedule.choose(found, None, _ALL).picked
    assert len(picked) == len(logs), "each of the logs is dirty"
    tiers.pick_merges(logs, fold, (), _ALL)


def _median(act: Callable[[int], None]) -> float:
    took = []
    for number in range(1, _REPEATS + 1):
        began = time.perf_counter()
        act(number)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def _log(partition: int, size: int) -> PartitionLog:
    """Returns a log of RUNS runs of `size` bytes each, none of which any merge would take with its neighbours."""
    end = RUNS * _OFFSETS
    found = PartitionLog(
        topic="large",
        partition=partition,
        bucket=0,
        start=0,
        end=end,
        folded_end=end,
        published=end,
        clean_end=0,
        runs=tuple(_run(partition, number, size) for number in range(RUNS)),
    )
    check_invariants(found)
    return found


def _run(partition: int, number: int, size: int) -> Run:
    start = number * _OFFSETS
    file = RunFile(
        path=f"runs/large/{partition}/{number:020d}.parquet",
        first=start,
        last=start + _OFFSETS - 1,
        records=_OFFSETS,
        bytes=size,
        file_bytes=size // 2,
        sha256="0" * 64,
        newest_ms=start,
        footer=f"1000:{'0' * 64}",
        entire=True,
    )
    return Run(
        start=start,
        end=start + _OFFSETS,
        level=1 + number % 3,
        files=(file,),
        records=_OFFSETS,
        bytes=size,
        arrived_ms=start,
        max_timestamp=start,
    )


DECISIONS: Final = Measurement(
    "decisions",
    f"a terabyte of runs, {RUNS:,} in each of 10 partitions: what a round decides",
    {"decisions of a round, s": (1, 0.5)},
    decisions,
    broker=False,
)
