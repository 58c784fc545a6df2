"""The full fold: base run and what is published above it become a new base run, one record per key.

Tombstones go in two steps (`compactor.clean.tombstones`), each log's by a horizon of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from compactor.clean import tombstones
from compactor.clean.record_filter import RecordFilter
from compactor.clean.rewriter import CompactionTask, Rewriter
from compactor.model.actions import Clean
from compactor.model.log import BASE, PartitionLog, Run
from compactor.policy import CompactionPolicy
from compactor.runs.file_stats import FileStats
from compactor.runs.scan import OffsetRange, between
from compactor.runs.writer import RunTarget


def full_fold(
    rewriter: Rewriter,
    logs: Sequence[PartitionLog],
    target: RunTarget,
    policy: CompactionPolicy,
    now_ms: int,
    limit: int | None = None,
) -> tuple[Clean, ...]:
    """Step 13b for all `logs` in one job: what replaces everything below each one's published offset.

    Files are rolled at policy.segment_bytes. Rejected records, which are sent by then, are not kept. `limit`: bytes
    per second. Raises StorageError, FoldError.
    """
    ranges = [between(log, log.start, log.published) for log in logs]
    what = CompactionTask(
        ranges=ranges,
        target=replace(target, max_bytes=policy.segment_bytes),
        keep=RecordFilter(horizons=tuple(tombstones.horizon(log, policy, now_ms) for log in logs), now_ms=now_ms),
        failpoint="clean.write",
        limit=limit,
    )
    folded = zip(logs, ranges, rewriter.rewrite(what), strict=True)
    return tuple(_clean(log, part, found, now_ms) for log, part, found in folded)


def keyless(log: PartitionLog) -> int:
    """The records without a key that a full fold of `log` leaves out: those of runs wholly below published.

    Of a run across it they are counted with the fold that takes its end; the cleaner counts it in parts before.
    """
    return sum(run.keyless for run in log.runs if run.end <= log.published)


def _clean(log: PartitionLog, part: OffsetRange, written: Sequence[FileStats], now_ms: int) -> Clean:
    return Clean(
        topic=log.topic,
        partition=log.partition,
        end=log.published,
        base=_base(part, written),
        at_ms=now_ms,
        output=log.output if log.output and log.output.source_offset == log.published else None,
        behind_ms=now_ms if log.ahead_ms is None else min(log.ahead_ms, now_ms),
    )


def _base(part: OffsetRange, written: Sequence[FileStats]) -> Run:
    horizons = [one.next_horizon_ms for one in written if one.next_horizon_ms is not None]
    return Run(
        start=part.start,
        end=part.end,
        level=BASE,
        files=tuple(one.file for one in written),
        records=sum(one.file.records for one in written),
        bytes=sum(one.file.bytes for one in written),
        tombstones=sum(one.tombstones for one in written),
        max_timestamp=max((one.max_timestamp for one in written), default=-1),
        arrived_ms=max((run.arrived_ms for run in part.runs), default=0),
        horizons=sum(one.horizons for one in written),
        next_horizon_ms=min(horizons, default=None),
    )
