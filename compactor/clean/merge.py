"""Merges: neighbouring runs of one level become one of the next, as `compactor.clean.tiers` has decided."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from compactor.clean.record_filter import RecordFilter
from compactor.clean.rewriter import CompactionTask, Rewriter
from compactor.clean.tiers import MergePlan
from compactor.model.actions import Merge
from compactor.policy import CompactionPolicy
from compactor.runs.file_stats import FileStats
from compactor.runs.scan import OffsetRange
from compactor.runs.writer import RunTarget


def merges(
    rewriter: Rewriter,
    plans: Sequence[MergePlan],
    target: RunTarget,
    policy: CompactionPolicy,
    limit: int | None = None,
) -> tuple[Merge, ...]:
    """Step 13a for all `plans` in one job: each one's run, folded by key where the policy compacts.

    Tombstones stay, and none is stamped: that the values before them are gone is only known by a full fold. Raises
    StorageError, FoldError.
    """
    what = CompactionTask(
        ranges=[OffsetRange(tp=plan.tp, start=plan.start, end=plan.end, runs=plan.runs) for plan in plans],
        target=replace(target, max_bytes=policy.segment_bytes),
        keep=RecordFilter(by_key=policy.compacts),
        failpoint="merge.write",
        limit=limit,
    )
    return tuple(_merge(plan, found) for plan, found in zip(plans, rewriter.rewrite(what), strict=True))


def keyless(plan: MergePlan, policy: CompactionPolicy) -> int:
    """The records without a key that the merge leaves out: none where the policy does not compact."""
    return sum(run.keyless for run in plan.runs) if policy.compacts else 0


def _merge(plan: MergePlan, written: Sequence[FileStats]) -> Merge:
    run = plan.result([one.file for one in written], sum(one.tombstones for one in written))
    return Merge(topic=plan.tp.topic, partition=plan.tp.partition, run=run)
