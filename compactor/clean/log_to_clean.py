"""What of a log is dirty, from run metadata: the two sides of the dirty ratio, and since when the dirt waits.

Foldable is what lies below published (never more: docs/protocol.md). What is above it, inside
min.compaction.lag.ms or not sent yet, counts on neither side. A file counts in full where all its records lie
on one side of a bound. One across a bound (a lag ends inside a micro-batch) is `unsure` until a `Restate`
has counted its two parts; it is never split in proportion.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from compactor.model.log import PartitionLog, Run, RunFile

_HEAD: Final = "head"
_UNSURE: Final = "unsure"
_HELD: Final = "held"


class LogToClean(Struct, frozen=True, kw_only=True):
    """Bytes are key + value + headers, uncompressed; times in ms.

    `base` and `head` are exact. `unsure` is what files across a bound hold: any part of it may belong to the
    head. `held` is above published; a file that a full fold has cut counts whole in it. `oldest_ms` is when the
    oldest record of the runs that are wholly foldable began to age, `unsure_oldest_ms` that of runs across a
    bound; None where there are none.
    """

    base: int = 0
    head: int = 0
    unsure: int = 0
    held: int = 0
    records: int = 0
    unsure_records: int = 0
    oldest_ms: int | None = None
    unsure_oldest_ms: int | None = None

    @property
    def ratio(self) -> float:
        """Dirty ratio: head / (base + head) (`LogToClean`); what is unsure counts as if it were not there."""
        return _ratio(self.base, self.head)

    @property
    def most(self) -> float:
        """The dirty ratio if all that is unsure were dirty: it is not higher."""
        return _ratio(self.base, self.head + self.unsure)

    @property
    def cost(self) -> int:
        """Bytes that a full fold reads, at most."""
        return self.base + self.head + self.unsure


def _ratio(base: int, head: int) -> float:
    return head / (base + head) if head else 0.0


def dirt(log: PartitionLog) -> LogToClean:
    """What of `log` is clean, dirty, held."""
    sides = [(_side(log, run, file), file) for run in log.runs for file in run.files]
    sure = [file for side, file in sides if side == _HEAD]
    unsure = [file for side, file in sides if side == _UNSURE]
    return LogToClean(
        base=log.base.bytes if log.base else 0,
        head=sum(file.bytes for file in sure),
        unsure=sum(file.bytes for file in unsure),
        held=sum(file.bytes for side, file in sides if side == _HELD),
        records=sum(file.records for file in sure),
        unsure_records=sum(file.records for file in unsure),
        oldest_ms=min((_oldest(run) for run in log.runs if _sides(log, run) == {_HEAD}), default=None),
        unsure_oldest_ms=min((_oldest(run) for run in across_bounds(log)), default=None),
    )


def across_bounds(log: PartitionLog) -> tuple[Run, ...]:
    """Runs of which a foldable part is not counted on its own: a `Restate` cut at published settles each."""
    return tuple(run for run in log.runs if (sides := _sides(log, run)) & {_HEAD, _UNSURE} and sides != {_HEAD})


def _sides(log: PartitionLog, run: Run) -> set[str]:
    return {_side(log, run, file) for file in run.files}


def _side(log: PartitionLog, run: Run, file: RunFile) -> str:
    end = min(run.end, log.published)
    if max(run.start, file.first) >= end:
        return _HELD
    return _HEAD if run.start <= file.first and file.last < end else _UNSURE


def _oldest(run: Run) -> int:
    return run.arrived_ms if run.oldest_ms is None else run.oldest_ms
