"""Plans what is read of which file: offset ranges of logs, and the bounds that they have in each file. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.model import record
from compactor.model.log import PartitionLog, Run, RunFile
from compactor.model.record import TopicPartition

LOG: Final = "log"
"""The column that numbers a scan's offset ranges: a partition is grouped by 4 bytes instead of its topic's name."""

SCAN: Final = record.RUN.append(pa.field(LOG, pa.int32()))
"""What a scan of several offset ranges yields: record.RUN, and the number of the range."""


class OffsetRange(Struct, frozen=True, kw_only=True, dict=True):
    """The offsets [start, end) of one partition, and every run that overlaps them, by offset."""

    tp: TopicPartition
    start: int
    end: int
    runs: tuple[Run, ...]

    @cached_property
    def file_ranges(self) -> tuple[FileRange, ...]:
        """The parts of files that belong to the range, by offset; no two overlap."""
        return tuple(
            FileRange(tp=self.tp, file=file, start=max(self.start, run.start), end=min(self.end, run.end))
            for run in self.runs
            for file in sorted(run.files, key=lambda file: file.first)
            if file.first < min(self.end, run.end) and file.last >= max(self.start, run.start)
        )


class FileRange(Struct, frozen=True, kw_only=True):
    """The records of `tp` in `file` with offsets [start, end); `log` numbers the range of a scan that they belong to.

    A file can hold more: other partitions, what a clean has replaced since, and what is above a lag.
    """

    tp: TopicPartition
    file: RunFile
    start: int
    end: int
    log: int = 0

    @property
    def bounds(self) -> tuple[int, TopicPartition, int, int]:
        """What is read, without the file: (log, partition, start, end)."""
        return self.log, self.tp, self.start, self.end


def between(log: PartitionLog, start: int, end: int) -> OffsetRange:
    """Returns the offsets [start, end) of `log`."""
    runs = tuple(run for run in log.kept if run.start < end and run.end > start)
    return OffsetRange(tp=log.tp, start=start, end=end, runs=tuple(sorted(runs, key=lambda run: run.start)))


def whole(log: PartitionLog) -> OffsetRange:
    """Returns everything that `log` keeps."""
    return between(log, log.start, log.end)


def files_of(ranges: Iterable[OffsetRange]) -> dict[str, RunFile]:
    """Returns every file that holds anything of `ranges`, by path."""
    return {file_range.file.path: file_range.file for part in ranges for file_range in part.file_ranges}


def files_in_order(ranges: Iterable[OffsetRange]) -> tuple[str, ...] | None:
    """Orders the paths of all files so that each range's come by offset; None if no order does that for all."""
    order: TopologicalSorter[str] = TopologicalSorter()
    for part in ranges:
        paths = [file_range.file.path for file_range in part.file_ranges]
        for path in paths:
            order.add(path)
        for first, second in pairwise(paths):
            if first != second:
                order.add(second, first)
    try:
        return tuple(order.static_order())
    except CycleError:
        return None


def plan_reads(ranges: Sequence[OffsetRange]) -> dict[str, list[FileRange]]:
    """Returns what is read of each file, by path: ranges of offsets without overlaps, by log and offset."""
    return _by_file(ranges, lambda _, file_range: (file_range.start, file_range.end))


def plan_wide_reads(ranges: Sequence[OffsetRange]) -> dict[str, list[FileRange]]:
    """Returns what `plan_reads` does, in the bounds of the whole offset range if those mean the same.

    Then one query reads many files. They mean the same for a file that is counted in full (`entire`). The rest of any
    other may belong to another run.
    """
    return _by_file(ranges, widened)


def widened(part: OffsetRange, file_range: FileRange) -> tuple[int, int]:
    """Returns the offsets [start, end) to read of a file: those of the whole file if all of them belong to `part`."""
    file = file_range.file
    start = part.start if file.entire and file.first >= file_range.start else file_range.start
    end = part.end if file.entire and file.last < file_range.end else file_range.end
    return start, end


def _by_file(
    ranges: Sequence[OffsetRange], bounds: Callable[[OffsetRange, FileRange], tuple[int, int]]
) -> dict[str, list[FileRange]]:
    by_path: dict[str, list[FileRange]] = {}
    for log, part in enumerate(ranges):
        for file_range in part.file_ranges:
            start, end = bounds(part, file_range)
            by_path.setdefault(file_range.file.path, []).append(replace(file_range, log=log, start=start, end=end))
    return {path: list(_apart(own)) for path, own in by_path.items()}


def _apart(ranges: Iterable[FileRange]) -> Iterator[FileRange]:
    """Joins overlapping `ranges` of one file: a record of a file that was counted in parts is still read once."""
    last: FileRange | None = None
    for file_range in sorted(ranges, key=lambda file_range: file_range.bounds):
        if last is None or (last.log, last.tp) != (file_range.log, file_range.tp) or file_range.start > last.end:
            if last is not None:
                yield last
            last = file_range
        else:
            last = replace(last, end=max(last.end, file_range.end))
    if last is not None:
        yield last
