"""Whether a log is due for a full fold, and why: by its oldest dirty record, by time, or by its dirty ratio.

Kafka considers a log only when new data come (`LogCleanerManager.grabFilthiestCompactedLog`); here every rule
is asked of idle logs too. max.compaction.lag.ms overrides the ratio, never min.compaction.lag.ms nor published.
"""

from __future__ import annotations

from msgspec import Struct

from compactor.clean import tombstones
from compactor.clean.log_to_clean import LogToClean, dirt
from compactor.clean.verdict import CleaningDecision, Reason
from compactor.errors import CatalogError
from compactor.model.log import PartitionLog
from compactor.model.log_transitions import check_invariants
from compactor.settings import FOREVER, CompactionPolicy, FoldPolicy


class _Case(Struct, frozen=True):
    """All that a rule may look at."""

    log: PartitionLog
    dirt: LogToClean
    policy: CompactionPolicy
    fold: FoldPolicy
    now_ms: int

    def late(self, oldest_ms: int | None) -> bool:
        """Whether a dirty record that ages from `oldest_ms` is older than max.compaction.lag.ms (KIP-354)."""
        return oldest_ms is not None and self.now_ms - oldest_ms > self.policy.max_compaction_lag_ms

    @property
    def turn_ms(self) -> int | None:
        """When fold.full.interval.ms has passed since the last full fold; None where that is never."""
        since = _last_fold(self.log)
        return None if since is None or self.fold.full_interval_ms < 0 else since + self.fold.full_interval_ms

    @property
    def turn(self) -> bool:
        """Whether it has passed."""
        return self.turn_ms is not None and self.now_ms >= self.turn_ms


def verdict(
    log: PartitionLog, policy: CompactionPolicy, fold: FoldPolicy, now_ms: int, hold: Reason | None = None
) -> CleaningDecision:
    """Whether `log` is due. `hold` (BUSY, QUARANTINED) says why it may not be considered at all.

    A log that breaks an invariant is FAULTY, which is no error for the others.
    """
    excluded = hold if policy.compacts else Reason.NOT_COMPACTED
    if excluded:
        return CleaningDecision(tp=log.tp, reason=excluded, dirt=dirt(log), limit=policy.min_cleanable_dirty_ratio)
    try:
        check_invariants(log)
    except CatalogError as error:
        return CleaningDecision(tp=log.tp, reason=Reason.FAULTY, fault=error.message)
    case = _Case(log, dirt(log), policy, fold, now_ms)
    reason = _overdue(case) or _by_turn(case) or _by_ratio(case) or _idle(case)
    due_ms = _due_ms(case, reason)
    return CleaningDecision(
        tp=log.tp, reason=reason, dirt=case.dirt, limit=policy.min_cleanable_dirty_ratio, due_ms=due_ms
    )


def worthwhile(log: PartitionLog, now_ms: int) -> bool:
    """Whether a full fold on command, or before a snapshot, would change anything, however little."""
    if log.published > log.clean_end or log.base is None:
        return log.published > log.start
    return tombstones.unstamped(log.base) > 0 or tombstones.passed(log.base, now_ms)


def _overdue(case: _Case) -> Reason | None:
    return Reason.OVERDUE if case.late(case.dirt.oldest_ms) else None


def _by_turn(case: _Case) -> Reason | None:
    """A day without a full fold is enough where there is anything to do."""
    if not case.turn:
        return None
    if case.dirt.records:
        return Reason.INTERVAL
    if tombstones.passed(case.log.base, case.now_ms):
        return Reason.EXPIRED
    return Reason.UNSTAMPED if tombstones.unstamped(case.log.base) else None


def _by_ratio(case: _Case) -> Reason | None:
    """Strictly above the limit: 1.0 never fires, 0.0 needs a byte. What hangs on unsure bytes is measured first."""
    limit, found = case.policy.min_cleanable_dirty_ratio, case.dirt
    if found.ratio > limit:
        return Reason.DIRTY
    hangs = found.most > limit or case.late(found.unsure_oldest_ms) or (case.turn and found.unsure_records)
    return Reason.UNMEASURED if hangs else None


def _idle(case: _Case) -> Reason:
    if case.dirt.records or case.dirt.unsure_records:
        return Reason.CLEAN_ENOUGH
    if case.dirt.held:
        return Reason.HELD
    return Reason.TOMBSTONES if case.log.base and case.log.base.tombstones else Reason.NOTHING


def _due_ms(case: _Case, reason: Reason) -> int | None:
    """Since when, or from when on, the log is due by time: the earliest of its deadlines."""
    lag_ms = None if case.dirt.oldest_ms is None else case.dirt.oldest_ms + case.policy.max_compaction_lag_ms + 1
    if reason is Reason.OVERDUE:
        return lag_ms
    times = (lag_ms, _turn_with_work_ms(case))
    return min((time for time in times if time is not None and time < FOREVER), default=None)


def _turn_with_work_ms(case: _Case) -> int | None:
    """When the interval has passed and there is something to do."""
    base = case.log.base
    if case.turn_ms is None:
        return None
    if case.dirt.records or tombstones.unstamped(base):
        return case.turn_ms
    return None if base is None or base.next_horizon_ms is None else max(case.turn_ms, base.next_horizon_ms)


def _last_fold(log: PartitionLog) -> int | None:
    """The time of the last full fold; where none is known, the arrival of the oldest run; None without runs."""
    if log.last_full_fold_ms is not None:
        return log.last_full_fold_ms
    return min((run.arrived_ms for run in (log.base, *log.runs) if run is not None), default=None)
