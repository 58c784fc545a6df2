"""How the runs of a log are replaced by others: merged, counted anew, dropped by retention; and what is always true.

`sound` holds design and docs/protocol.md to their word: it is asked after every one of these changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from compactor.errors import DEFECT, CatalogError
from compactor.model.log import BASE, PartitionLog, Run, checked, exact, upper


def merge(log: PartitionLog, run: Run) -> PartitionLog:
    """`log` with `run` in the place of its neighbouring runs of lower levels that cover the same offsets.

    CatalogError where they do not: then the log was changed while they were merged, and the merge is void.
    """
    first, end = _covered(log, run.start, run.end)
    replaced = log.runs[first:end]
    if any(old.level >= run.level for old in replaced):
        raise CatalogError(f"{log.tp}: a run of level {run.level} would replace one that is not below it.", DEFECT)
    if run.records > sum(old.records for old in replaced):
        raise CatalogError(f"{log.tp}: a merged run has more records than the runs that it replaces.", DEFECT)
    return sound(replace(log, runs=(*log.runs[:first], run, *log.runs[end:])))


def restate(log: PartitionLog, runs: Sequence[Run]) -> PartitionLog:
    """`log` with `runs` in the place of the one level-0 run whose offsets they cover: its files, its records.

    Each of `runs` counts exactly what lies within it, so that a bound between two of them crosses no file.
    """
    if not runs:
        raise CatalogError(f"{log.tp}: a run would be restated as nothing.", DEFECT)
    first, end = _covered(log, runs[0].start, runs[-1].end)
    old = log.runs[first]
    if old.folded and len(runs) > 1:
        raise CatalogError(f"{log.tp}: no end is inside the run [{old.start}, {old.end}), which was folded.", DEFECT)
    if end != first + 1 or not _same(old, runs):
        raise CatalogError(f"{log.tp}: the run [{old.start}, {old.end}) would be restated as another one.", DEFECT)
    return sound(replace(log, runs=(*log.runs[:first], *runs, *log.runs[end:])))


def _same(old: Run, runs: Sequence[Run]) -> bool:
    """Whether `runs` are `old` in pieces: its files, and all its records where those were counted exactly."""
    joined = all(left.end == right.start for left, right in pairwise(runs))
    level0 = all(run.level == 0 for run in (old, *runs))
    paths = {file.path for run in runs for file in run.files} == {file.path for file in old.files}
    records = sum(run.records for run in runs)
    counted = records == old.records if exact(old) else records <= old.records
    return joined and level0 and paths and counted and all(exact(run) for run in runs)


def retain(log: PartitionLog, start: int) -> PartitionLog:
    """`log` from source offset `start` on, never past published; a `start` at or below its own changes nothing.

    clean_end follows where it is passed (LogCleanerManager does the same with its checkpoint). That is no end
    inside a fold: below `start` no key is left, so none can be missing there. `base_output` stays: to resume
    earlier is safe.
    """
    if start <= log.start:
        return log
    runs = tuple(upper(run, start) for run in log.runs if run.end > start)
    base = upper(log.base, start) if log.base else None
    clean_end = max(log.clean_end, start)
    return sound(replace(log, start=start, clean_end=clean_end, base=base, runs=runs))


def _covered(log: PartitionLog, start: int, end: int) -> tuple[int, int]:
    """The positions of the runs that cover [start, end) exactly, from first to behind the last."""
    found = [place for place, run in enumerate(log.runs) if run.start < end and run.end > start]
    if not found or log.runs[found[0]].start != start or log.runs[found[-1]].end != end:
        raise CatalogError(f"{log.tp}: no runs of the log cover just the offsets [{start}, {end}).", DEFECT)
    return found[0], found[-1] + 1


def sound(log: PartitionLog) -> PartitionLog:
    """`log`, if it is as it must always be; CatalogError otherwise, naming what is not."""
    checked(log)
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
    where = f"the run [{run.start}, {run.end}) of level {run.level}"
    if not log.clean_end <= run.start <= run.end <= log.end:
        yield f"{where} is not within [{log.clean_end}, {log.end})"
    if run.level > 0 and run.end > log.published:
        yield f"{where} is merged beyond published, {log.published}"
    if any(file.last < run.start or file.first >= run.end for file in run.files):
        yield f"{where} names a file that has nothing of it"
