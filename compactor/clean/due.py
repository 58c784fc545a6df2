"""Decides whether a log is due for cleaning, and why: by its oldest dirty record, by time, or by its dirty ratio.

Kafka considers a log only when new data come (`LogCleanerManager.grabFilthiestCompactedLog`); here every rule
applies to idle logs too. max.compaction.lag.ms overrides the ratio, never min.compaction.lag.ms nor published.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from msgspec import Struct

from compactor.clean import tombstones
from compactor.clean.log_to_clean import LogToClean
from compactor.errors import CatalogError
from compactor.model.log import PartitionLog
from compactor.model.log_transitions import check_invariants
from compactor.model.record import TopicPartition
from compactor.model.times import moment
from compactor.settings import FOREVER, CompactionPolicy, FoldPolicy


class Reason(Enum):
    """Why a log is due, or why not. The value is what `describe` prints."""

    OVERDUE = "overdue"
    INTERVAL = "interval passed"
    EXPIRED = "tombstones expired"
    UNSTAMPED = "tombstones without a horizon"
    DIRTY = "dirty enough"
    UNINDEXED = "keys without an index"
    UNMEASURED = "to be measured"
    CLEAN_ENOUGH = "clean enough"
    HELD = "held"
    TOMBSTONES = "tombstones wait"
    NOTHING = "nothing to do"
    BUSY = "busy"
    QUARANTINED = "quarantined"
    UNCERTAIN = "position unknown"
    NOT_COMPACTED = "not compacted"
    FAULTY = "faulty"
    TOPIC_WAITS = "topic waits"


class Queue(Enum):
    """The two queues of due logs: by time, and by dirty ratio."""

    OVERDUE = "overdue"
    FILTHY = "filthy"


# By reason the queue of a log that is due; a log with any other reason is not due.
_QUEUES: Final = {
    Reason.OVERDUE: Queue.OVERDUE,
    Reason.INTERVAL: Queue.OVERDUE,
    Reason.EXPIRED: Queue.OVERDUE,
    Reason.UNSTAMPED: Queue.OVERDUE,
    Reason.UNINDEXED: Queue.OVERDUE,
    Reason.DIRTY: Queue.FILTHY,
}

_TEXTS: Final = {
    Reason.OVERDUE: "Due: its oldest dirty record should have been folded by {when} (max.compaction.lag.ms).",
    Reason.INTERVAL: "Due since {when}: {records} dirty records, and fold.full.interval.ms has passed.",
    Reason.EXPIRED: "Due since {when}: the delete horizon of tombstones has passed.",
    Reason.UNSTAMPED: "Due since {when}: tombstones have no delete horizon yet.",
    Reason.DIRTY: "Due: its dirty ratio is {ratio:.3f}, above min.cleanable.dirty.ratio {limit:g}.",
    Reason.UNINDEXED: "Due: keys of it are in no index, and state.index asks for one.",
    Reason.UNMEASURED: "Not decided: {straddling} bytes lie across the published offset and have to be counted first.",
    Reason.CLEAN_ENOUGH: "Not due: its dirty ratio is {ratio:.3f}, not above min.cleanable.dirty.ratio {limit:g}; "
    "due by time {next}.",
    Reason.HELD: "Not due: {uncleanable} bytes are inside min.compaction.lag.ms or not published yet, "
    "none is foldable.",
    Reason.TOMBSTONES: "Not due: nothing is dirty; tombstones are kept, due by time {next}.",
    Reason.NOTHING: "Not due: nothing is dirty and there are no tombstones.",
    Reason.BUSY: "Not considered: a fold of it is running.",
    Reason.QUARANTINED: "Not considered: it is quarantined; see its error, then `release` it.",
    Reason.UNCERTAIN: "Not considered: its committed position is not known yet, or lies above the log's end.",
    Reason.NOT_COMPACTED: "Not considered: its cleanup.policy has no compact.",
    Reason.FAULTY: "Not considered: {fault}",
    Reason.TOPIC_WAITS: "Not considered: its topic is cleaned as a whole, and a partition of it is quarantined, or a "
    "fold of it is being sent.",
}


class CleaningDecision(Struct, frozen=True, kw_only=True):
    """Whether one log is due for cleaning, by `measured`.

    `due_ms` is since when it is due by time, or when it will be without any traffic; None: never by time.
    `limit` is min.cleanable.dirty.ratio; `fault` is what is wrong with a FAULTY log.
    """

    tp: TopicPartition
    reason: Reason
    measured: LogToClean = LogToClean()
    limit: float = 0.5
    due_ms: int | None = None
    fault: str = ""

    @property
    def queue(self) -> Queue | None:
        """The queue it waits in; None if it is not due."""
        return _QUEUES.get(self.reason)

    @property
    def due(self) -> bool:
        """Whether it is to be cleaned now."""
        return self.queue is not None

    @property
    def text(self) -> str:
        """The reason as a sentence."""
        when = moment(self.due_ms)
        return _TEXTS[self.reason].format(
            when=when,
            next="never" if self.due_ms is None else f"at {when}",
            ratio=self.measured.ratio,
            limit=self.limit,
            records=self.measured.cleanable_records,
            straddling=self.measured.straddling_bytes,
            uncleanable=self.measured.uncleanable_bytes,
            fault=self.fault,
        )


def evaluate(
    log: PartitionLog, policy: CompactionPolicy, fold: FoldPolicy, now_ms: int, excluded: Reason | None = None
) -> CleaningDecision:
    """Decides whether `log` is due at `now_ms`. `excluded` (BUSY, QUARANTINED) says why it may not be considered.

    A log that breaks an invariant is FAULTY: the others are decided on all the same.
    """
    excluded = excluded if policy.compacts else Reason.NOT_COMPACTED
    if excluded:
        return CleaningDecision(
            tp=log.tp, reason=excluded, measured=LogToClean.of(log), limit=policy.min_cleanable_dirty_ratio
        )
    try:
        check_invariants(log)
    except CatalogError as error:
        return CleaningDecision(tp=log.tp, reason=Reason.FAULTY, fault=error.message)
    case = _Case(log, LogToClean.of(log), policy, fold, now_ms)
    overdue = Reason.OVERDUE if case.late(case.measured.oldest_ms) else None
    reason = overdue or _by_interval(case) or _by_ratio(case) or _by_index(case) or _idle(case)
    due_ms = _due_ms(case, reason)
    return CleaningDecision(
        tp=log.tp, reason=reason, measured=case.measured, limit=policy.min_cleanable_dirty_ratio, due_ms=due_ms
    )


def would_change(log: PartitionLog, now_ms: int) -> bool:
    """Returns whether a clean of `log` on command, or before a snapshot, would change anything, however little."""
    if log.published > log.clean_end or log.base is None:
        return log.published > log.start
    return tombstones.unstamped(log.base) > 0 or tombstones.passed(log.base, now_ms)


def quarantined(logs: Iterable[PartitionLog]) -> dict[TopicPartition, Reason]:
    """Returns those of `logs` that are in quarantine and may not be cleaned, each with that reason."""
    return {log.tp: Reason.QUARANTINED for log in logs if log.quarantine is not None}


class _Case(Struct, frozen=True):
    """All that a rule may look at."""

    log: PartitionLog
    measured: LogToClean
    policy: CompactionPolicy
    fold: FoldPolicy
    now_ms: int

    def late(self, oldest_ms: int | None) -> bool:
        """Returns whether a dirty record that ages from `oldest_ms` is older than max.compaction.lag.ms (KIP-354)."""
        return oldest_ms is not None and self.now_ms - oldest_ms > self.policy.max_compaction_lag_ms

    @property
    def interval_end_ms(self) -> int | None:
        """When fold.full.interval.ms has passed since the last clean; None if that is never."""
        since = _last_clean_ms(self.log)
        return None if since is None or self.fold.full_interval_ms < 0 else since + self.fold.full_interval_ms

    @property
    def interval_passed(self) -> bool:
        """Whether fold.full.interval.ms has passed."""
        return self.interval_end_ms is not None and self.now_ms >= self.interval_end_ms


def _by_interval(case: _Case) -> Reason | None:
    """Returns why the log is due once fold.full.interval.ms has passed; None if nothing is to be done."""
    if not case.interval_passed:
        return None
    if case.measured.cleanable_records:
        return Reason.INTERVAL
    if tombstones.passed(case.log.base, case.now_ms):
        return Reason.EXPIRED
    return Reason.UNSTAMPED if tombstones.unstamped(case.log.base) else None


def _by_ratio(case: _Case) -> Reason | None:
    """Compares strictly: 1.0 never fires, 0.0 needs a byte. Straddling bytes that decide are counted first."""
    limit, measured = case.policy.min_cleanable_dirty_ratio, case.measured
    if measured.ratio > limit:
        return Reason.DIRTY
    by_time = case.late(measured.straddling_oldest_ms) or (case.interval_passed and measured.straddling_records)
    depends = measured.max_ratio > limit or by_time
    return Reason.UNMEASURED if depends else None


def _by_index(case: _Case) -> Reason | None:
    """Asks for a clean if keys of published records are in no index: of before the setting, or of a rebuilt log.

    The clean rewrites the log once, index included: an index alone would need an action that older versions refuse.
    """
    published = (run for run in case.log.kept if run.end <= case.log.published)
    is_whole = all(file.index is not None for run in published for file in run.files)
    return None if is_whole or not case.fold.has_index else Reason.UNINDEXED


def _idle(case: _Case) -> Reason:
    """Returns why the log is not due."""
    if case.measured.cleanable_records or case.measured.straddling_records:
        return Reason.CLEAN_ENOUGH
    if case.measured.uncleanable_bytes:
        return Reason.HELD
    return Reason.TOMBSTONES if case.log.base and case.log.base.tombstones else Reason.NOTHING


def _due_ms(case: _Case, reason: Reason) -> int | None:
    """Returns since when, or from when on, the log is due by time, in ms: the earliest of its deadlines."""
    oldest_ms = case.measured.oldest_ms
    lag_ms = None if oldest_ms is None else oldest_ms + case.policy.max_compaction_lag_ms + 1
    if reason is Reason.OVERDUE:
        return lag_ms
    times = (lag_ms, _interval_with_work_ms(case))
    return min((time for time in times if time is not None and time < FOREVER), default=None)


def _interval_with_work_ms(case: _Case) -> int | None:
    """Returns when the interval has passed and there is something to do, in ms; None if that is never."""
    base = case.log.base
    if case.interval_end_ms is None:
        return None
    if case.measured.cleanable_records or tombstones.unstamped(base):
        return case.interval_end_ms
    return None if base is None or base.next_horizon_ms is None else max(case.interval_end_ms, base.next_horizon_ms)


def _last_clean_ms(log: PartitionLog) -> int | None:
    """Returns when the log was last cleaned, in ms; else when its oldest run arrived; None without runs."""
    if log.last_full_fold_ms is not None:
        return log.last_full_fold_ms
    return min((run.arrived_ms for run in log.kept), default=None)
