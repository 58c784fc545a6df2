"""One source partition as keyfold keeps it: its runs and its offsets, as immutable values.

Offsets of one log always stand so:

    start ≤ clean_end ≤ published ≤ folded_end ≤ end

`published` and `clean_end` only ever stand at ends of folds that were sent completely: inside a fold a
key may be gone because of a later one, so no smaller end describes a state that ever was.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import CatalogError, GapError
from compactor.record import TopicPartition


class RunFile(Struct, frozen=True, kw_only=True):
    """One partition's part of one Parquet file; the file may hold other partitions too.

    `path` is relative to the connector's folder in the store. `first` and `last` are offsets of records
    that are there; `bytes` is theirs by `record.measure`; `file_bytes` and `sha256` are the whole file's.
    """

    path: str
    first: int
    last: int
    records: int
    bytes: int
    file_bytes: int
    sha256: str


class Run(Struct, frozen=True, kw_only=True):
    """An immutable set of records, all that is kept of the offsets [start, end).

    `level` 0 is a micro-batch as it came; the base run has `BASE`. `arrived_ms` is when the youngest of it
    was ingested: no record is treated as younger than that, so one stamped in the future ages from then.
    `horizons` counts tombstones that have a delete horizon, the earliest being `next_horizon_ms`.
    """

    start: int
    end: int
    level: int
    files: tuple[RunFile, ...]
    records: int
    bytes: int
    tombstones: int = 0
    rejected: int = 0
    max_timestamp: int = -1
    arrived_ms: int = 0
    horizons: int = 0
    next_horizon_ms: int | None = None


BASE = -1


class OutputPoint(Struct, frozen=True):
    """A commit of the changelog: everything below `source_offset` is published below `output_offset`."""

    source_offset: int
    output_offset: int


class Gap(Struct, frozen=True):
    """Source offsets [start, end) that were gone before they were read."""

    start: int
    end: int


class PartitionLog(Struct, frozen=True, kw_only=True):
    """The log of one source partition.

    `bucket` is chosen once and stored: a partition that moved between transactional ids would be published
    twice. `backlog_end` is the last stable offset when the partition was first seen, until it is published.
    `output` is the newest commit whose source offset is `published`; `base_output` the one at `clean_end`.
    """

    topic: str
    partition: int
    bucket: int
    start: int
    end: int
    folded_end: int
    published: int
    clean_end: int
    backlog_end: int | None = None
    runs: tuple[Run, ...] = ()
    base: Run | None = None
    output: OutputPoint | None = None
    base_output: OutputPoint | None = None
    gaps: tuple[Gap, ...] = ()

    @property
    def tp(self) -> TopicPartition:
        """Its topic and partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def paths(self) -> frozenset[str]:
        """Every file that this log still needs."""
        kept = (*self.runs, self.base) if self.base else self.runs
        return frozenset(file.path for run in kept for file in run.files)


def empty(tp: TopicPartition, bucket: int, start: int, backlog_end: int | None) -> PartitionLog:
    """A log that begins at source offset `start` and holds nothing yet."""
    return PartitionLog(
        topic=tp.topic,
        partition=tp.partition,
        bucket=bucket,
        start=start,
        end=start,
        folded_end=start,
        published=start,
        clean_end=start,
        backlog_end=backlog_end if backlog_end is not None and backlog_end > start else None,
    )


def append(log: PartitionLog, start: int, end: int, run: Run | None, gap: Gap | None) -> PartitionLog:
    """`log` with the offsets [start, end) taken in, of which `run` holds the records, if there are any."""
    if start != log.end or end < start:
        raise GapError(f"{log.tp}: a batch of offsets [{start}, {end}) does not continue a log that ends at {log.end}.")
    gaps = (*log.gaps, gap) if gap else log.gaps
    return checked(replace(log, end=end, runs=(*log.runs, run) if run else log.runs, gaps=gaps))


def plan(log: PartitionLog, folded_end: int) -> PartitionLog:
    """`log` with a fold up to `folded_end` decided: no later fold may end below it."""
    return checked(replace(log, folded_end=max(log.folded_end, folded_end)))


def publish(log: PartitionLog, end: int, output: OutputPoint | None) -> PartitionLog:
    """`log` with the fold up to `end` sent completely, as far as the changelog's `output`."""
    backlog = None if log.backlog_end is not None and end >= log.backlog_end else log.backlog_end
    folded_end = max(log.folded_end, end)
    return checked(replace(log, published=end, folded_end=folded_end, backlog_end=backlog, output=output or log.output))


def clean(log: PartitionLog, clean_end: int, base: Run) -> PartitionLog:
    """`log` with everything below `clean_end` replaced by `base`; a run across it keeps its upper part."""
    kept = tuple(_from(run, clean_end) for run in log.runs if run.end > clean_end)
    return checked(replace(log, clean_end=clean_end, base=base, runs=kept, base_output=_output_at(log, clean_end)))


def _from(run: Run, start: int) -> Run:
    files = tuple(file for file in run.files if file.last >= start)
    return replace(run, start=max(run.start, start), files=files)


def _output_at(log: PartitionLog, clean_end: int) -> OutputPoint | None:
    if log.output and log.output.source_offset == clean_end:
        return log.output
    return log.base_output


def checked(log: PartitionLog) -> PartitionLog:
    """`log`, if its offsets are in order; CatalogError otherwise: a bug must not become a lost record."""
    if not log.start <= log.clean_end <= log.published <= log.folded_end <= log.end:
        raise CatalogError(
            f"{log.tp}: offsets out of order: start {log.start}, clean_end {log.clean_end}, published "
            f"{log.published}, folded_end {log.folded_end}, end {log.end}.",
            "This is a defect of keyfold; nothing was committed.",
        )
    return log
