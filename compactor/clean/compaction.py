"""Rewrites the runs of many logs in one job: a clean gives each log a new base run, a merge each pick one run.

A clean leaves one record per key of the base run and of all that is published above it; tombstones go in two cleans
(`compactor.clean.tombstones`), each log's by a horizon of its own. A merge leaves one record per key of its own offsets
and all tombstones, and stamps no horizon: that the values before them are gone is only known by a clean.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from compactor.clean import tombstones
from compactor.clean.record_filter import RecordFilter
from compactor.clean.rewriter import CompactionTask, Rewriter
from compactor.clean.tiers import MergePick
from compactor.clean.winners import Winners
from compactor.model.actions import Clean, Merge
from compactor.model.log import BASE, PartitionLog
from compactor.runs.file_stats import FileStats, run_of
from compactor.runs.scan import OffsetRange, between
from compactor.runs.writer import RunTarget
from compactor.settings import CompactionPolicy


def clean(
    rewriter: Rewriter,
    logs: Sequence[PartitionLog],
    target: RunTarget,
    policy: CompactionPolicy,
    now_ms: int,
    limit: int | None = None,
    winners: Winners | None = None,
) -> tuple[Clean, ...]:
    """Cleans all `logs` in one job (step 13b). Returns their new base runs, in order.

    `winners`: of keys that have one winner over the logs of a topic; `logs` are all logs of their topics then.

    Files are rolled at policy.segment_bytes. Rejected records, which are published by then, are not kept. `limit`:
    bytes per second. Raises StorageError, FoldError.
    """
    ranges = [between(log, log.start, log.published) for log in logs]
    task = CompactionTask(
        ranges=ranges,
        target=replace(target, max_bytes=policy.segment_bytes),
        keep=RecordFilter(
            horizons=tuple(tombstones.horizon(log, policy, now_ms) for log in logs), now_ms=now_ms, winners=winners
        ),
        failpoint="clean.write",
        limit=limit,
    )
    cleaned = zip(logs, ranges, rewriter.rewrite(task), strict=True)
    return tuple(_clean(log, offsets, written, now_ms) for log, offsets, written in cleaned)


def merge(
    rewriter: Rewriter,
    picks: Sequence[MergePick],
    target: RunTarget,
    policy: CompactionPolicy,
    limit: int | None = None,
) -> tuple[Merge, ...]:
    """Merges all `picks` in one job (step 13a), by key if the policy compacts. Returns the new runs, in their order.

    `limit`: bytes per second. Raises StorageError, FoldError.
    """
    task = CompactionTask(
        ranges=[OffsetRange(tp=pick.tp, start=pick.start, end=pick.end, runs=pick.runs) for pick in picks],
        target=replace(target, max_bytes=policy.segment_bytes),
        keep=RecordFilter(by_key=policy.compacts),
        failpoint="merge.write",
        limit=limit,
    )
    return tuple(
        Merge(topic=pick.tp.topic, partition=pick.tp.partition, run=pick.result(written))
        for pick, written in zip(picks, rewriter.rewrite(task), strict=True)
    )


def _clean(log: PartitionLog, offsets: OffsetRange, written: Sequence[FileStats], now_ms: int) -> Clean:
    arrived_ms = max((run.arrived_ms for run in offsets.runs), default=0)
    return Clean(
        topic=log.topic,
        partition=log.partition,
        end=log.published,
        base=run_of(offsets.start, offsets.end, written, level=BASE, arrived_ms=arrived_ms),
        at_ms=now_ms,
        output=log.output if log.output and log.output.source_offset == log.published else None,
        behind_ms=now_ms if log.ahead_ms is None else min(log.ahead_ms, now_ms),
    )
