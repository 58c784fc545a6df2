"""One source partition as keyfold keeps it: its runs and its offsets, as immutable values.

Offsets of one log always stand so:

    start ≤ clean_end ≤ published ≤ folded_end ≤ end

`published` and `clean_end` only ever stand at ends of folds that were sent completely: inside a fold a
key may be gone because of a later one, so no smaller end describes a state that ever was.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import DEFECT, CatalogError, GapError
from compactor.model.record import OfPartition, TopicPartition


class RunFile(Struct, frozen=True, kw_only=True):
    """One partition's part of one Parquet file; the file may hold other partitions too.

    `path` is relative to the connector's folder in the store. `first` and `last` are offsets of records
    that are there; `bytes` is theirs by `record.measure`; `file_bytes` and `sha256` are the whole file's.
    `newest_ms` is their largest timestamp, `footer` the length and checksum of the file's Parquet footer
    (`compactor.runs.checksums`); None where the file was written before that was kept. `keyless` counts those that have
    no key and were not rejected: only a raw copy has them; 0 where the file was written before they were counted.
    `entire`: all that the file holds of the partition is counted here. False where it was counted anew within bounds,
    or where the file was written before that was kept.
    """

    path: str
    first: int
    last: int
    records: int
    bytes: int
    file_bytes: int
    sha256: str
    newest_ms: int | None = None
    footer: str | None = None
    keyless: int = 0
    entire: bool = False


class Run(Struct, frozen=True, kw_only=True):
    """An immutable set of records, all that is kept of the offsets [start, end).

    `level` 0 is a micro-batch as it came; the base run has `BASE`. `arrived_ms` is when the youngest of it
    was ingested: no record is treated as younger than that, so one stamped in the future ages from then.
    `oldest_ms` is the earliest time from which a record of it ages (`aged_from`); None: as `arrived_ms`.
    `horizons` counts tombstones that have a delete horizon, the earliest being `next_horizon_ms`.

    `folded`, of level 0: later records of it had superseded others before it was written; those are not in it.

    Counts are exact where every file lies within [start, end); a file that reaches beyond is counted whole.
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
    oldest_ms: int | None = None
    folded: bool = False

    @property
    def keyless(self) -> int:
        """Its records without a key, which no fold by key keeps."""
        return sum(file.keyless for file in self.files)

    @property
    def is_closed(self) -> bool:
        """Whether no offset inside it is an end: a key may be gone there because of a later record of the run."""
        return self.level > 0 or self.folded


BASE = -1


def aged_from(smallest_timestamp_ms: int | None, arrived_ms: int) -> int:
    """Returns the time in ms from which the oldest of some records ages: its timestamp, at the latest its arrival.

    `smallest_timestamp_ms` is the smallest above 0 of records that arrived at `arrived_ms`; None where all
    are 0 or -1, which say nothing (KIP-354 leaves them out; here they age from their arrival).
    """
    return arrived_ms if smallest_timestamp_ms is None else min(smallest_timestamp_ms, arrived_ms)


class OutputPoint(Struct, frozen=True):
    """A commit of the changelog: everything below `source_offset` is published below `output_offset`."""

    source_offset: int
    output_offset: int


class Gap(Struct, frozen=True):
    """Source offsets [start, end) that were gone before they were read."""

    start: int
    end: int


class Quarantined(Struct, frozen=True, kw_only=True):
    """Why a log is set aside, in the words of the error; times in ms.

    It has failed `failures` times in a row since `since_ms`, and is looked at again at `retry_ms`. `publishing`: what
    is not published yet is damaged, so that nothing more of it is sent either.
    """

    since_ms: int
    retry_ms: int
    failures: int
    error: str
    publishing: bool = False


class PartitionLog(OfPartition, Struct, frozen=True, kw_only=True):
    """The log of one source partition.

    `bucket` is stored and changes only in a take-over, once every older transactional id is fenced: a
    partition that moved between two live ids would be published twice. `backlog_end` is the last stable
    offset when the partition was first seen, until it is published. `output` is the newest commit whose
    source offset is `published`; `base_output` the one at `clean_end`.
    `last_full_fold_ms` is the latest time that a full fold was given; None: none yet. `quarantine`: it is set aside.
    `ahead_ms` is when sending began of what is above `published`, `behind_ms` a time not later than when sending began
    of what is above `clean_end`: from then on a follower of the output may be past them. None: nothing above was sent.
    `begun`: a fold of it was planned, so the output may hold records of it; older versions did not write that.
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
    last_full_fold_ms: int | None = None
    ahead_ms: int | None = None
    behind_ms: int | None = None
    quarantine: Quarantined | None = None
    begun: bool = False

    @property
    def may_be_sent(self) -> bool:
        """Whether the output may hold records of it, as far as the catalog knows; retention changes nothing in that."""
        return self.begun or self.folded_end > self.start or self.output is not None

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


def plan(log: PartitionLog, folded_end: int, at_ms: int | None = None) -> PartitionLog:
    """`log` with a fold up to `folded_end` decided at `at_ms`: no later fold may end below it."""
    ahead_ms = log.ahead_ms if log.ahead_ms is not None else at_ms
    behind_ms = log.behind_ms if log.behind_ms is not None else at_ms
    folded_end = max(log.folded_end, folded_end)
    return checked(replace(log, folded_end=folded_end, ahead_ms=ahead_ms, behind_ms=behind_ms, begun=True))


def publish(log: PartitionLog, end: int, output: OutputPoint | None) -> PartitionLog:
    """`log` with the fold up to `end` sent completely, as far as the changelog's `output`."""
    if end < log.published:
        raise CatalogError(
            f"{log.tp}: published would go back from {log.published} to {end}.",
            DEFECT,
        )
    backlog = None if log.backlog_end is not None and end >= log.backlog_end else log.backlog_end
    folded_end = max(log.folded_end, end)
    ahead_ms = log.ahead_ms if folded_end > end else None
    sent = replace(log, published=end, folded_end=folded_end, backlog_end=backlog, output=output or log.output)
    return checked(replace(sent, ahead_ms=ahead_ms))


def clean(
    log: PartitionLog,
    clean_end: int,
    base: Run,
    at_ms: int | None = None,
    output: OutputPoint | None = None,
    behind_ms: int | None = None,
) -> PartitionLog:
    """`log` with everything below `clean_end` replaced by `base`; a run across it keeps its upper part.

    `at_ms` is the time that the fold was given; one that is earlier than the last moves nothing back. `output` is
    the commit that stood at `clean_end`: publishing may have gone on since, and then the log knows it no more; nor
    when that began, for which `behind_ms` stands.
    """
    _check_end(log, clean_end)
    kept = tuple(upper(run, clean_end) for run in log.runs if run.end > clean_end)
    output, folded_ms = _output_at(log, clean_end, output), _latest(log.last_full_fold_ms, at_ms)
    cleaned = replace(log, clean_end=clean_end, base=upper(base, log.start), runs=kept, base_output=output)
    since_ms = None if log.folded_end == clean_end else _first(behind_ms, log.behind_ms)
    return checked(replace(cleaned, last_full_fold_ms=folded_ms, behind_ms=since_ms))


def _check_end(log: PartitionLog, clean_end: int) -> None:
    """No full fold ends below an earlier one, nor inside a run that was folded: no such offset is an end any more."""
    inside = _around(log, clean_end)
    if clean_end < log.clean_end or inside:
        raise CatalogError(
            f"{log.tp}: a full fold ends at {clean_end}, which is "
            f"{'inside a folded run' if inside else f'below the last one, at {log.clean_end}'}.",
            DEFECT,
        )


def end_within(log: PartitionLog, offset: int) -> int:
    """The largest offset up to `offset` that may be an end."""
    around = _around(log, offset)
    return around.start if around else offset


def end_beyond(log: PartitionLog, offset: int) -> int:
    """The smallest offset from `offset` on that may be an end."""
    around = _around(log, offset)
    return around.end if around else offset


def _around(log: PartitionLog, offset: int) -> Run | None:
    """The run that has `offset` inside it and no end there; None: it may be one."""
    return next((run for run in log.runs if run.is_closed and run.start < offset < run.end), None)


def exact(run: Run) -> bool:
    """Whether the counts of `run` are of its own records only: no file of it reaches beyond its offsets."""
    return all(run.start <= file.first and file.last < run.end for file in run.files)


def upper(run: Run, start: int) -> Run:
    """What of `run` has offsets from `start` on; files that lie wholly below are no longer counted."""
    if run.start >= start:
        return run
    files = tuple(file for file in run.files if file.last >= start)
    records, size = sum(file.records for file in files), sum(file.bytes for file in files)
    return replace(run, start=start, end=max(run.end, start), files=files, records=records, bytes=size)


def _first(*times: int | None) -> int | None:
    return next((time for time in times if time is not None), None)


def _latest(*times: int | None) -> int | None:
    return max((time for time in times if time is not None), default=None)


def _output_at(log: PartitionLog, clean_end: int, planned: OutputPoint | None) -> OutputPoint | None:
    """The commit that belongs to `clean_end`; in doubt an earlier one, from which it is safe to resume as well."""
    points = (point for point in (planned, log.output) if point and point.source_offset == clean_end)
    return next(points, log.base_output)


def checked(log: PartitionLog) -> PartitionLog:
    """`log`, if its offsets are in order; CatalogError otherwise: a bug must not become a lost record."""
    if not log.start <= log.clean_end <= log.published <= log.folded_end <= log.end:
        raise CatalogError(
            f"{log.tp}: offsets out of order: start {log.start}, clean_end {log.clean_end}, published "
            f"{log.published}, folded_end {log.folded_end}, end {log.end}.",
            DEFECT,
        )
    return log
