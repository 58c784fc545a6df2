"""Counts a level-0 run again within bounds, if a lag ends inside its micro-batch: decisions need exact bytes.

It reads files. Decisions from metadata, which `keyfold describe` makes too, import neither this module nor Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from msgspec.structs import replace

from compactor.model.actions import Restate
from compactor.model.log import PartitionLog, Run, RunFile, exact
from compactor.runs.file_stats import FileStats, combine, level0_run, stats_of, with_checksum
from compactor.runs.reader import read_file_range
from compactor.runs.scan import FileRange, OffsetRange
from compactor.storage.base import Storage


def recount(storage: Storage, log: PartitionLog, run: Run) -> Restate:
    """Counts `run` of `log`, which lies across published, as one run below it and one above it. Raises StorageError.

    The bytes of a file cannot be split in proportion: the records below are read, without Spark; what is above is the
    rest. So each record is read once, however often published moves inside the run.
    """
    cut = min(max(log.published, run.start), run.end)
    below = _counted(storage, log, run, run.start, cut)
    above = _rest(run, below, cut) if below and exact(run) else _counted(storage, log, run, cut, run.end)
    return Restate(topic=log.topic, partition=log.partition, runs=tuple(piece for piece in (below, above) if piece))


def _counted(storage: Storage, log: PartitionLog, run: Run, start: int, end: int) -> Run | None:
    if start >= end:
        return None
    file_ranges = OffsetRange(tp=log.tp, start=start, end=end, runs=(run,)).file_ranges
    parts = [part for file_range in file_ranges for part in _stats_within(storage, file_range)]
    return level0_run(start, end, parts, run.arrived_ms, folded=run.folded)


def _stats_within(storage: Storage, file_range: FileRange) -> Iterator[FileStats]:
    """Counts what of a file lies in the range; nothing if that holds no record."""
    file = file_range.file
    parts = [part for batch in read_file_range(storage, file_range) for part in stats_of(file.path, batch)]
    if parts:
        entire = file.entire and file_range.start <= file.first and file.last < file_range.end
        part = with_checksum(reduce(combine, parts), file.file_bytes, file.sha256, file.footer)
        yield replace(part, file=replace(part.file, entire=entire, index=file.index))


def _rest(run: Run, below: Run, start: int) -> Run | None:
    """Returns what `run` holds and `below` does not, with the times of the whole run: it may seem older than it is."""
    if start >= run.end:
        return None
    counted = {file.path: file for file in below.files}
    files = tuple(_left(file, counted.get(file.path), start) for file in run.files)
    return replace(
        run,
        start=start,
        files=tuple(file for file in files if file.records),
        records=run.records - below.records,
        bytes=run.bytes - below.bytes,
        tombstones=run.tombstones - below.tombstones,
        rejected=run.rejected - below.rejected,
    )


def _left(file: RunFile, below: RunFile | None, start: int) -> RunFile:
    cut = replace(file, first=max(file.first, start), entire=file.entire and start <= file.first)
    if below is None:
        return cut
    return replace(
        cut,
        records=file.records - below.records,
        bytes=file.bytes - below.bytes,
        keyless=file.keyless - below.keyless,
    )
