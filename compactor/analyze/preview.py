"""Previews a log as a clean that began now would find it, under some settings. Pure.

Before the cleaner folds, the worker publishes what is publishable and retention takes the old end. So the fold that is
previewed ends at `publishable` and begins at the start that `retention.evaluate_retention` gives the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from compactor.clean.log_to_clean import straddling_runs
from compactor.clean.retention import Retention, evaluate_retention
from compactor.model import log_transitions
from compactor.model.log import PartitionLog, Run, RunFile, aged_from, first_end_of
from compactor.model.times import earliest
from compactor.publish.publishable import publishable
from compactor.settings import EngineSettings


class Hold(Enum):
    """Why records from the fold's end on may not be folded."""

    LAG = "min.compaction.lag.ms"
    BACKLOG = "an unread backlog"
    CLOSED = "a closed topic"


class FoldPreview(Struct, frozen=True, kw_only=True):
    """`log` as the fold would find it: published to the fold's end, its start moved by `retention`.

    `folds`: whether cleanup.policy has `compact`; otherwise no fold by key happens, and only retention takes records.
    """

    log: PartitionLog
    retention: Retention
    hold: Hold | None
    folds: bool

    @property
    def start(self) -> int:
        """The offset at which the log begins by then."""
        return self.log.start

    @property
    def end(self) -> int:
        """The offset at which the fold ends."""
        return self.log.published


def preview(
    log: PartitionLog,
    settings: EngineSettings,
    now_ms: int,
    *,
    closed: bool,
    first_young: Callable[[int], int | None],
) -> FoldPreview:
    """Returns what a clean of `log` would find at `now_ms`; `first_young` as for `publishable`.

    Of a closed topic nothing more is published. The fold never ends below published, which cannot be taken back.
    """
    end = log.published
    if not closed:
        end = publishable(log, settings.policy, now_ms, first_young, bootstrap_fold=settings.bootstrap_fold_enable)
    sent = log_transitions.publish(log, end, None)
    gone = evaluate_retention(sent, settings.policy, now_ms)
    hold = _hold(log, settings, closed=closed) if end < log.end else None
    return FoldPreview(
        log=log_transitions.retain(sent, gone.start), retention=gone, hold=hold, folds=settings.policy.compacts
    )


def _hold(log: PartitionLog, settings: EngineSettings, *, closed: bool) -> Hold:
    if closed:
        return Hold.CLOSED
    backlog_end = (log.backlog_end or 0) if settings.bootstrap_fold_enable else 0
    return Hold.BACKLOG if log.end < max(backlog_end, first_end_of(log) or 0) else Hold.LAG


class Count(Struct, frozen=True, kw_only=True):
    """Records and bytes, all and those rejected or without a key; `oldest_ms` is the smallest timestamp above 0."""

    records: int = 0
    bytes: int = 0
    rejected: int = 0
    rejected_bytes: int = 0
    oldest_ms: int | None = None

    def __add__(self, other: Count) -> Count:
        return Count(
            records=self.records + other.records,
            bytes=self.bytes + other.bytes,
            rejected=self.rejected + other.rejected,
            rejected_bytes=self.rejected_bytes + other.rejected_bytes,
            oldest_ms=earliest(self.oldest_ms, other.oldest_ms),
        )


class RangeCounts(Struct, frozen=True):
    """What one log holds between neighbouring `boundaries`: `counts[i]` of [boundaries[i], boundaries[i + 1])."""

    boundaries: tuple[int, ...]
    counts: tuple[Count, ...]

    def between(self, start: int, end: int) -> Count:
        """Returns what lies in [start, end); both must be boundaries, as nothing was counted in between."""
        total = Count()
        if start < end:
            first, last = self.boundaries.index(start), self.boundaries.index(end)
            for count in self.counts[first:last]:
                total += count
        return total


def boundaries(log: PartitionLog, previews: Iterable[FoldPreview]) -> tuple[int, ...]:
    """Returns the offsets at which `log` has to be counted apart, so that all `previews` of it can be exact."""
    offsets = {log.start, log.end}
    for seen in previews:
        offsets.update((seen.start, seen.end), *((run.start, run.end) for run in straddling_runs(seen.log)))
    return tuple(sorted(offsets))


def with_exact_counts(log: PartitionLog, counts: RangeCounts) -> PartitionLog:
    """Returns `log` with every run across published counted as two, as by a `Restate`: then its bytes are exact."""
    across = {run.start: run for run in straddling_runs(log)}
    runs = (piece for run in log.runs for piece in (_pieces(log, run, counts) if run.start in across else (run,)))
    return replace(log, runs=tuple(runs))


def _pieces(log: PartitionLog, run: Run, counts: RangeCounts) -> Iterator[Run]:
    bound = min(max(log.published, run.start), run.end)
    for start, end in ((run.start, bound), (bound, run.end)):
        if start < end:
            yield _counted(run, start, end, counts.between(start, end))


def _counted(run: Run, start: int, end: int, count: Count) -> Run:
    """Returns the part [start, end) of `run` with the counts of `count`: one file in place of those that hold it."""
    file = RunFile(
        path="", first=start, last=end - 1, records=count.records, bytes=count.bytes, file_bytes=0, sha256=""
    )
    return replace(
        run,
        start=start,
        end=end,
        files=(file,) if count.records else (),
        records=count.records,
        bytes=count.bytes,
        oldest_ms=aged_from(count.oldest_ms, run.arrived_ms),
    )
