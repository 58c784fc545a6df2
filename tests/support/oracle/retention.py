"""Checks what retention may remove and what it must: whole files, the oldest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from compactor.model.log import PartitionLog
from compactor.model.state import CatalogState
from tests.support.engine import Row
from tests.support.oracle.steps import Settings


class Segment(NamedTuple):
    """A file of a log: its offsets [first, last] in the log, and the largest timestamp, from which it ages."""

    first: int
    last: int
    newest_ms: int
    arrived_ms: int
    bytes: int

    def old(self, now_ms: int, settings: Settings) -> bool:
        """Whether its youngest record is older than retention.ms; a future timestamp counts as its arrival."""
        aged_ms = self.arrived_ms if self.newest_ms < 0 else min(self.newest_ms, self.arrived_ms)
        return settings.retention_ms is not None and 0 <= settings.retention_ms < now_ms - aged_ms


def segments(log: PartitionLog) -> list[Segment]:
    """Returns the files of `log`, by offset."""
    runs = (log.base, *log.runs) if log.base else log.runs
    found = [
        Segment(
            max(file.first, run.start),
            min(file.last, run.end - 1),
            run.max_timestamp if file.newest_ms is None else file.newest_ms,
            run.arrived_ms,
            file.bytes,
        )
        for run in runs
        for file in run.files
    ]
    return sorted(found)


def violations(
    before: PartitionLog,
    start: int,
    now_ms: int,
    settings: Settings,
    kept: Sequence[Row],
    arrived_ms: Mapping[int, int],
) -> Iterator[str]:
    """Yields what is wrong with moving the start of `before`, with the records `kept`, to `start`."""
    found = segments(before)
    gone = [one for one in found if one.first < start]
    if settings.retention_ms is None:
        yield "there is no delete in cleanup.policy"
    if start > before.published:
        yield f"retention passes published, {before.published}"
    if not gone or gone[-1].last + 1 != start:
        yield f"the start, {start}, is not behind a whole file"
    for one in gone:
        inside = [row for row in kept if one.first <= row["offset"] <= one.last]
        if any(row["timestamp"] > one.newest_ms or arrived_ms[row["offset"]] > one.arrived_ms for row in inside):
            yield f"{one} is said to be older than its records, {inside}"
    missed = sum(one.bytes for one in found if one.first >= start)
    too_large = 0 <= settings.retention_bytes <= missed
    if not too_large and not all(one.old(now_ms, settings) for one in gone):
        yield f"of {gone} not all are older than retention.ms, and {missed} bytes are left"


def missed(before: Iterable[PartitionLog], after: CatalogState, now_ms: int, settings: Settings) -> Iterator[str]:
    """Yields logs whose oldest file is older than retention.ms and was not removed."""
    for log in before:
        found = segments(log)
        due = bool(found) and found[0].last < log.published and found[0].old(now_ms, settings)
        if due and after.log(log.tp).start == log.start:
            yield f"{log.tp}: {found[0]} is older than retention.ms"
