"""Changes a log: append, plan a fold, publish, clean, merge, restate, retain; and checks it after each change.

Every transition takes a log and returns the next one, or raises CatalogError if the change does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from compactor.errors import DEFECT, CatalogError, GapError
from compactor.model.log import (
    BASE,
    Gap,
    Generation,
    OutputPoint,
    PartitionLog,
    Run,
    closed_run_around,
    empty,
    exact,
    generation_of,
    lower,
    upper,
)
from compactor.model.times import latest


def append(
    log: PartitionLog,
    start: int,
    end: int,
    run: Run | None,
    gap: Gap | None,
    late_last: str | UnsetType = UNSET,
) -> PartitionLog:
    """Returns `log` with the offsets [start, end) ingested; `run` holds their records, `gap` what was lost of them.

    `late_last` as in `PartitionLog`; no text if the last record is not late, unset if there is none.

    Raises GapError if the offsets do not continue the log.
    """
    if start != log.end or end < start:
        raise GapError(f"{log.tp}: a batch of offsets [{start}, {end}) does not continue a log that ends at {log.end}.")
    gaps = (*log.gaps, gap) if gap else log.gaps
    late_last = log.late_last if late_last is UNSET else late_last or UNSET
    return _in_order(replace(log, end=end, runs=(*log.runs, run) if run else log.runs, gaps=gaps, late_last=late_last))


def plan_fold(log: PartitionLog, folded_end: int, at_ms: int | None = None) -> PartitionLog:
    """Returns `log` with a fold up to `folded_end` decided at `at_ms`: no later fold may end below it."""
    ahead_ms = log.ahead_ms if log.ahead_ms is not None else at_ms
    behind_ms = log.behind_ms if log.behind_ms is not None else at_ms
    folded_end = max(log.folded_end, folded_end)
    return _in_order(replace(log, folded_end=folded_end, ahead_ms=ahead_ms, behind_ms=behind_ms, begun=True))


def publish(
    log: PartitionLog, end: int, output: OutputPoint | None, sent_from: int | UnsetType = UNSET
) -> PartitionLog:
    """Returns `log` with the fold up to `end` sent completely; `output` is the commit of the output at `end`.

    `sent_from` as in `PartitionLog`: what publishes without it makes that unknown.
    """
    if end < log.published:
        raise CatalogError(
            f"{log.tp}: published would go back from {log.published} to {end}.",
            DEFECT,
        )
    backlog = None if log.backlog_end is not None and end >= log.backlog_end else log.backlog_end
    folded_end = max(log.folded_end, end)
    ahead_ms = log.ahead_ms if folded_end > end else None
    sent = replace(log, published=end, folded_end=folded_end, backlog_end=backlog, output=output or log.output)
    return _in_order(replace(sent, ahead_ms=ahead_ms, sent_from=sent_from))


def clean(
    log: PartitionLog,
    clean_end: int,
    base: Run,
    at_ms: int | None = None,
    output: OutputPoint | None = None,
    behind_ms: int | None = None,
) -> PartitionLog:
    """Returns `log` with everything below `clean_end` replaced by `base`; a run across it keeps its upper part.

    `at_ms` is the `now` of the clean; an earlier one than the last moves nothing back. `output` is the commit of
    the output at `clean_end`, and `behind_ms` when sending began above it: both were read when the fold was planned, as
    publishing may have gone on since and the log no longer has them.
    """
    _check_end(log, clean_end)
    kept = tuple(upper(run, clean_end) for run in log.runs if run.end > clean_end)
    known = (output,) if behind_ms is not None else (output, log.output)  # an older version did not say what it was
    output, folded_ms = _output_at(log, clean_end, known), latest(log.last_full_fold_ms, at_ms)
    cleaned = replace(log, clean_end=clean_end, base=upper(base, log.start), runs=kept, base_output=output)
    since_ms = None if log.folded_end == clean_end else behind_ms if behind_ms is not None else log.behind_ms
    return _in_order(replace(cleaned, last_full_fold_ms=folded_ms, behind_ms=since_ms))


def merge(log: PartitionLog, run: Run) -> PartitionLog:
    """Returns `log` with `run` in the place of neighbouring runs of lower levels that cover the same offsets.

    Raises CatalogError if no runs cover just these offsets: the log was changed during the merge, which is void.
    """
    first, end = _covered(log, run.start, run.end)
    replaced = log.runs[first:end]
    if any(old.level >= run.level for old in replaced):
        raise CatalogError(f"{log.tp}: a run of level {run.level} would replace one that is not below it.", DEFECT)
    if run.records > sum(old.records for old in replaced):
        raise CatalogError(f"{log.tp}: a merged run has more records than the runs that it replaces.", DEFECT)
    return check_invariants(replace(log, runs=(*log.runs[:first], run, *log.runs[end:])))


def restate(log: PartitionLog, runs: Sequence[Run]) -> PartitionLog:
    """Returns `log` with `runs` in the place of the level-0 run of the same offsets, files and records.

    Each of `runs` counts exactly what lies within it.
    """
    if not runs:
        raise CatalogError(f"{log.tp}: a run would be restated as nothing.", DEFECT)
    first, end = _covered(log, runs[0].start, runs[-1].end)
    old = log.runs[first]
    if old.folded and len(runs) > 1:
        raise CatalogError(f"{log.tp}: no end is inside the run [{old.start}, {old.end}), which was folded.", DEFECT)
    if end != first + 1 or not _same(old, runs):
        raise CatalogError(f"{log.tp}: the run [{old.start}, {old.end}) would be restated as another one.", DEFECT)
    return check_invariants(replace(log, runs=(*log.runs[:first], *runs, *log.runs[end:])))


def _same(old: Run, runs: Sequence[Run]) -> bool:
    """Returns whether `runs` are `old` in pieces: all its files and records if those were counted exactly.

    Otherwise they may be fewer, as a file may reach beyond `old` on both sides and have nothing within.
    """
    joined = all(left.end == right.start for left, right in pairwise(runs))
    level0 = all(run.level == 0 for run in (old, *runs))
    paths, old_paths = {file.path for run in runs for file in run.files}, {file.path for file in old.files}
    records = sum(run.records for run in runs)
    counted = (paths, records) == (old_paths, old.records) if exact(old) else paths <= old_paths
    within = records <= old.records
    return joined and level0 and counted and within and all(exact(run) for run in runs)


def retain(log: PartitionLog, start: int) -> PartitionLog:
    """Returns `log` from source offset `start` on; a `start` at or below its own changes nothing.

    `clean_end` is raised to `start` if it is lower, as `LogCleanerManager` does with its checkpoint. It need not be
    the end of a fold then: below `start` no record is left, so none can be missing. `base_output` stays, as resuming
    earlier is safe. Raises CatalogError if `start` is above `published`.
    """
    if start <= log.start:
        return log
    runs = tuple(upper(run, start) for run in log.runs if run.end > start)
    base = upper(log.base, start) if log.base else None
    clean_end = max(log.clean_end, start)
    return check_invariants(replace(log, start=start, clean_end=clean_end, base=base, runs=runs))


def skip(log: PartitionLog, end: int) -> PartitionLog:
    """Returns `log` with [published, `end`) given up, as an operator asked: a gap, whatever of it was ingested.

    A fold that was begun there is void; what of it was sent lies within the gap. Raises CatalogError if `end` is
    below the end of what was published.
    """
    if end < log.published:
        raise CatalogError(f"{log.tp}: offsets up to {end} would be skipped, below published {log.published}.", DEFECT)
    runs = tuple(lower(run, log.published) for run in log.runs if run.start < log.published)
    backlog = None if log.backlog_end is not None and end >= log.backlog_end else log.backlog_end
    gaps = (*log.gaps, Gap(log.published, end)) if end > log.published else log.gaps
    skipped = replace(log, published=end, folded_end=end, end=end, runs=runs, gaps=gaps, backlog_end=backlog)
    return check_invariants(replace(skipped, ahead_ms=None, sent_from=UNSET, late_last=UNSET))


def begin_generation(
    log: PartitionLog, generation: Generation, lead: Run | None, gap: Gap | None = None, carried: Run | None = None
) -> PartitionLog:
    """Returns the log of `generation`, which is read again from the end of `carried` on, or else from its start.

    Nothing else of the earlier one is kept but its bucket. `lead` holds tombstones for the keys that the output holds,
    at the offsets below 0 that it covers. `gap` counts what is given up below the generation. Raises CatalogError if
    the numbers do not follow.
    """
    if generation.number <= generation_of(log):
        raise CatalogError(
            f"{log.tp}: generation {generation.number} would follow generation {generation_of(log)}.", DEFECT
        )
    if lead is not None and not lead.start < 0 <= generation.start == lead.end:
        raise CatalogError(f"{log.tp}: a generation from {generation.start} would begin with {_named(lead)}.", DEFECT)
    if carried is not None and (carried.level, carried.start, carried.end) != (0, generation.start, log.end):
        raise CatalogError(f"{log.tp}: a generation from {generation.start} would carry {_named(carried)}.", DEFECT)
    start = generation.start if lead is None else lead.start
    end = generation.start if carried is None else carried.end
    output = None if generation.output_offset is None else OutputPoint(start, generation.output_offset)
    begun = replace(
        empty(log.tp, log.bucket, start, None),
        end=end,
        runs=tuple(run for run in (lead, carried) if run is not None),
        output=output,
        gaps=() if gap is None else (gap,),
        generation=generation,
        # A bare tombstone at `end` still goes with the record before it.
        late_last=log.late_last if end == log.end else UNSET,
    )
    return check_invariants(begun)


def _check_end(log: PartitionLog, clean_end: int) -> None:
    """Raises CatalogError if a clean would end below an earlier one, or inside a run that is closed."""
    inside = closed_run_around(log, clean_end)
    if clean_end < log.clean_end or inside:
        raise CatalogError(
            f"{log.tp}: a full fold ends at {clean_end}, which is "
            f"{'inside a folded run' if inside else f'below the last one, at {log.clean_end}'}.",
            DEFECT,
        )


def _output_at(log: PartitionLog, clean_end: int, known: Sequence[OutputPoint | None]) -> OutputPoint | None:
    """Returns the commit of the output at `clean_end`; an earlier one, from which it is safe to resume, if unknown.

    One that came since the clean was planned may be too late for it, at the same source offset: with one winner over a
    topic, other partitions' records move it.
    """
    points = (point for point in known if point and point.source_offset == clean_end)
    return next(points, log.base_output)


def _covered(log: PartitionLog, start: int, end: int) -> tuple[int, int]:
    """Returns the indexes of the runs that cover [start, end) exactly: of the first, and after the last."""
    places = [place for place, run in enumerate(log.runs) if run.start < end and run.end > start]
    if not places or log.runs[places[0]].start != start or log.runs[places[-1]].end != end:
        raise CatalogError(f"{log.tp}: no runs of the log cover just the offsets [{start}, {end}).", DEFECT)
    return places[0], places[-1] + 1


def _in_order(log: PartitionLog) -> PartitionLog:
    """Returns `log`, if its offsets are in order; raises CatalogError otherwise, so that no defect loses a record."""
    if not log.start <= log.clean_end <= log.published <= log.folded_end <= log.end:
        raise CatalogError(
            f"{log.tp}: offsets out of order: start {log.start}, clean_end {log.clean_end}, published "
            f"{log.published}, folded_end {log.folded_end}, end {log.end}.",
            DEFECT,
        )
    return log


def check_invariants(log: PartitionLog) -> PartitionLog:
    """Returns `log`, if everything holds that docs/protocol.md relies on; raises CatalogError otherwise.

    The error names what does not hold.
    """
    _in_order(log)
    for wrong in _faults(log):
        raise CatalogError(f"{log.tp}: {wrong}.", DEFECT)
    return log


def _faults(log: PartitionLog) -> Iterator[str]:
    for left, right in pairwise(log.runs):
        if left.end > right.start:
            yield f"runs overlap: [{left.start}, {left.end}) and [{right.start}, {right.end})"
    for run in log.runs:
        yield from _run_faults(log, run)
    base = log.base
    if base and not (base.level == BASE and log.start <= base.start <= base.end <= log.clean_end):
        yield f"the base run [{base.start}, {base.end}) is not within [{log.start}, {log.clean_end})"
    if log.base_output and log.base_output.source_offset > log.clean_end:
        yield f"a snapshot would resume from {log.base_output.source_offset}, above clean_end {log.clean_end}"


def _run_faults(log: PartitionLog, run: Run) -> Iterator[str]:
    if not log.clean_end <= run.start <= run.end <= log.end:
        yield f"{_named(run)} is not within [{log.clean_end}, {log.end})"
    if run.level > 0 and run.end > log.published:
        yield f"{_named(run)} is merged beyond published, {log.published}"
    for file in run.files:
        if file.last < run.start or file.first >= run.end:
            yield f"{_named(run)} names a file that has nothing of it"


def _named(run: Run) -> str:
    return f"the run [{run.start}, {run.end}) of level {run.level}"
