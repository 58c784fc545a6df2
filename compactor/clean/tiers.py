"""Picks the neighbouring runs of a log that are merged into one of the next level, so that few remain. Pure.

A merge folds its own offsets and nothing else: it keeps the tombstones, stamps no horizon, drops none. It only takes
runs wholly below published: an offset inside a merge can never again be the end of a fold. The base run
is rewritten only when the log is cleaned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from compactor.bin_packing import AtMost, pack
from compactor.model.log import PartitionLog, Run
from compactor.model.record import TopicPartition
from compactor.runs.file_stats import FileStats, run_of
from compactor.settings import FoldPolicy


class MergePick(Struct, frozen=True, kw_only=True):
    """Neighbouring `runs`, by offset, that become one run of `level`."""

    tp: TopicPartition
    runs: tuple[Run, ...]
    level: int

    @property
    def start(self) -> int:
        """The first offset of the merge."""
        return self.runs[0].start

    @property
    def end(self) -> int:
        """The offset after its last one."""
        return self.runs[-1].end

    @property
    def bytes(self) -> int:
        """What the merge reads, at most."""
        return sum(run.bytes for run in self.runs)

    def result(self, written: Sequence[FileStats]) -> Run:
        """Builds the merged run that was `written`, with the times of its runs: it ages from their oldest record."""
        arrived_ms = max(run.arrived_ms for run in self.runs)
        return replace(
            run_of(self.start, self.end, written, level=self.level, arrived_ms=arrived_ms),
            max_timestamp=max(run.max_timestamp for run in self.runs),
            oldest_ms=min(run.aged_ms for run in self.runs),
            rejected=0,  # they are counted until they are published, and a merge takes only what is
        )


def pick_merge(log: PartitionLog, fold: FoldPolicy) -> MergePick | None:
    """Picks the merge that `log` is due for, the lowest level first; None if it is due for none.

    Level 0: all neighbours, once fold.level0.files of them wait. Higher: fold.tier.runs neighbours of one
    level and similar size. Runs over fold.run.max.bytes are not merged, and end a row of neighbours.
    """
    rows = sorted(_rows(log, fold), key=lambda row: (row[0].level, row[0].start))
    mergeable = (_of_level0(row, fold) if row[0].level == 0 else _of_tier(row, fold) for row in rows)
    runs = next((runs for runs in mergeable if runs), None)
    return MergePick(tp=log.tp, runs=runs, level=runs[0].level + 1) if runs else None


def pick_merges(
    logs: Iterable[PartitionLog], fold: FoldPolicy, held: Collection[TopicPartition], budget: int
) -> tuple[MergePick, ...]:
    """Picks one merge for each log that is due and not `held`, as many as one job of `budget` bytes takes.

    Most runs first, ties by topic and partition; the first is taken whatever its size.
    """
    picks = (pick_merge(log, fold) for log in logs if log.tp not in held)
    due = sorted((pick for pick in picks if pick), key=lambda pick: (-len(pick.runs), pick.tp))
    return tuple(next(pack(due, AtMost(budget, lambda pick: pick.bytes)), ()))


def _rows(log: PartitionLog, fold: FoldPolicy) -> Iterator[tuple[Run, ...]]:
    """Yields neighbouring runs of one level that may be merged."""

    def row_of(run: Run) -> tuple[bool, int]:
        return run.end <= log.published and run.bytes <= fold.run_max_bytes, run.level

    return (tuple(runs) for (mergeable, _), runs in groupby(log.runs, row_of) if mergeable)


def _of_level0(row: tuple[Run, ...], fold: FoldPolicy) -> tuple[Run, ...] | None:
    return row if len(row) >= max(2, fold.level0_files) else None


def _of_tier(row: tuple[Run, ...], fold: FoldPolicy) -> tuple[Run, ...] | None:
    """Returns the oldest fold.tier.runs neighbours in `row` such that none is larger than the others together."""
    size = max(2, fold.tier_runs)
    windows = (row[first : first + size] for first in range(len(row) - size + 1))
    return next((runs for runs in windows if _similar(runs)), None)


def _similar(runs: Sequence[Run]) -> bool:
    """Returns whether no run is larger than the others together: so a rewrite at least doubles the run of a byte."""
    return 2 * max(run.bytes for run in runs) <= sum(run.bytes for run in runs)
