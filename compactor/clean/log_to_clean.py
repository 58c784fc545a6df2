"""Clean, cleanable and uncleanable bytes of a log, from run metadata: the two sides of the dirty ratio.

Cleanable are records below published (never more: docs/protocol.md). A record above it, inside
min.compaction.lag.ms or not published yet, is uncleanable and counts on neither side. A file counts in full if all
its records lie on one side of a bound. A file across a bound (a lag ends inside a micro-batch) is straddling until a
`Restate` has counted its two parts (`compactor.clean.recount`); it is never split in proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from compactor.model.log import PartitionLog, Run, RunFile

# The sides of a file: wholly below published, across a bound, wholly above published.
_CLEANABLE: Final = "cleanable"
_STRADDLING: Final = "straddling"
_UNCLEANABLE: Final = "uncleanable"
_SIDES: Final = (_CLEANABLE, _STRADDLING, _UNCLEANABLE)


class LogToClean(Struct, frozen=True, kw_only=True):
    """What of a log is clean, cleanable and uncleanable (Kafka's `LogToClean`).

    Bytes are key + value + headers, uncompressed; times in ms.

    `clean_bytes` (the base run) and `cleanable_bytes` are exact. `straddling_bytes` is what files across a bound hold:
    any part of it may be cleanable. `uncleanable_bytes` lies above published; a file that a clean has cut counts whole
    in it. `oldest_ms` is when the oldest record of the runs that are wholly cleanable began to age,
    `straddling_oldest_ms` that of runs across a bound; None if there are none.
    """

    clean_bytes: int = 0
    cleanable_bytes: int = 0
    straddling_bytes: int = 0
    uncleanable_bytes: int = 0
    cleanable_records: int = 0
    straddling_records: int = 0
    oldest_ms: int | None = None
    straddling_oldest_ms: int | None = None

    @classmethod
    def of(cls, log: PartitionLog) -> LogToClean:
        """Measures `log`."""
        sizes, records = dict.fromkeys(_SIDES, 0), dict.fromkeys(_SIDES, 0)
        cleanable: list[int] = []
        straddling: list[int] = []
        for run in log.runs:
            sides = [_side(log, run, file) for file in run.files]
            for side, file in zip(sides, run.files, strict=True):
                sizes[side] += file.bytes
                records[side] += file.records
            if sides and all(side == _CLEANABLE for side in sides):
                cleanable.append(run.aged_ms)
            elif _is_straddling(sides):
                straddling.append(run.aged_ms)
        return cls(
            clean_bytes=log.base.bytes if log.base else 0,
            cleanable_bytes=sizes[_CLEANABLE],
            straddling_bytes=sizes[_STRADDLING],
            uncleanable_bytes=sizes[_UNCLEANABLE],
            cleanable_records=records[_CLEANABLE],
            straddling_records=records[_STRADDLING],
            oldest_ms=min(cleanable, default=None),
            straddling_oldest_ms=min(straddling, default=None),
        )

    @property
    def ratio(self) -> float:
        """Dirty ratio: cleanable / (clean + cleanable); straddling bytes count as if they were not there."""
        return _ratio(self.clean_bytes, self.cleanable_bytes)

    @property
    def max_ratio(self) -> float:
        """The dirty ratio if all straddling bytes were cleanable: it is not higher."""
        return _ratio(self.clean_bytes, self.cleanable_bytes + self.straddling_bytes)

    @property
    def total_bytes(self) -> int:
        """Bytes that a clean reads, at most."""
        return self.clean_bytes + self.cleanable_bytes + self.straddling_bytes


def straddling_runs(log: PartitionLog) -> tuple[Run, ...]:
    """Returns the runs with a cleanable part that is not counted by itself; `recount` counts it."""
    return tuple(run for run in log.runs if _is_straddling([_side(log, run, file) for file in run.files]))


def _is_straddling(sides: Sequence[str]) -> bool:
    """Returns whether a run with files on these sides has something cleanable that is not counted by itself."""
    return any(side != _UNCLEANABLE for side in sides) and any(side != _CLEANABLE for side in sides)


def _ratio(clean: int, cleanable: int) -> float:
    return cleanable / (clean + cleanable) if cleanable else 0.0


def _side(log: PartitionLog, run: Run, file: RunFile) -> str:
    end = min(run.end, log.published)
    if max(run.start, file.first) >= end:
        return _UNCLEANABLE
    return _CLEANABLE if run.start <= file.first and file.last < end else _STRADDLING
