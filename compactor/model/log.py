"""One source partition as keyfold keeps it: its runs and its offsets, as immutable values.

The offsets of a log are always in this order (`log_transitions.check_invariants`):

    start ≤ clean_end ≤ published ≤ folded_end ≤ end

`published` and `clean_end` are always ends of folds that were sent completely. Inside a fold a record may be missing
because a later one of the fold has its key, so an offset inside it stands for no state of the source.
"""

from __future__ import annotations

from collections.abc import Container

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from compactor.model.record import OfPartition, TopicPartition


class RunFile(Struct, frozen=True, kw_only=True):
    """What one Parquet file holds of one partition; the file may hold other partitions too.

    `path` is relative to the connector's folder in the storage. `first` and `last` are offsets of the partition's first
    and last record in the file; `bytes` is the size of its records by `record.measure`; `file_bytes` and `sha256` are
    of the whole file. `newest_ms` is the largest timestamp of its records, `footer` the length and checksum of the
    file's Parquet footer (`compactor.runs.checksums`); both are None in files of older versions. `keyless` counts
    records that have no key and were not rejected, which only logs without compaction keep; 0 in files of older
    versions. `entire`: the counts are of everything that the file holds of the partition. It is False if they are of
    a range of offsets only (`Restate`), and in files of older versions. `key_encodings` are the encodings
    (`record.RUN`) of all its keys, with commas between them; None if that is not known, or there are many.

    `index` names the section of an index file that has the keys of its records (`compactor.index.section`); None if
    they are in none.
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
    key_encodings: str | None = None
    index: str | None = None

    @property
    def index_path(self) -> str | None:
        """The path of the index file that has the keys of its records."""
        return None if self.index is None else self.index.partition(":")[0]


class Run(Struct, frozen=True, kw_only=True):
    """An immutable set of records: all that is kept of the offsets [start, end).

    `level` 0 is what a micro-batch has read; `BASE` is the base run. `arrived_ms` is when its youngest record was
    ingested: no record counts as younger than that, so one that is stamped in the future ages from then.
    `oldest_ms` is the earliest time from which a record of it ages (`aged_from`); None is `arrived_ms`.
    `horizons` counts tombstones that have a delete horizon; `next_horizon_ms` is the earliest of these horizons.

    `folded`, of level 0: records that a later one of the run superseded were left out when it was written.

    Counts are exact if every file lies within [start, end); a file that reaches beyond is counted in full.
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
        """Number of its records without a key, which no fold by key keeps."""
        return sum(file.keyless for file in self.files)

    @property
    def aged_ms(self) -> int:
        """The time in ms from which its oldest record ages."""
        return self.arrived_ms if self.oldest_ms is None else self.oldest_ms

    @property
    def is_closed(self) -> bool:
        """Whether no fold may end inside it: a record may be missing there, as a later one of the run has its key."""
        return self.level > 0 or self.folded


# The level of the base run, below that of every other run.
BASE = -1


class OutputPoint(Struct, frozen=True):
    """A commit of the output: everything below `source_offset` is published below `output_offset`."""

    source_offset: int
    output_offset: int


class Gap(Struct, frozen=True):
    """Source offsets [start, end) that the source had lost before they were read, or that an operator gave up."""

    start: int
    end: int


class Quarantined(Struct, frozen=True, kw_only=True):
    """Why a log is in quarantine; times in ms.

    `error` is the text of the error. The log has failed `failures` times in a row since `since_ms`, and is verified
    again at `retry_ms`. `publishing`: the unpublished records are damaged, so that publishing stops too.
    """

    since_ms: int
    retry_ms: int
    failures: int
    error: str
    publishing: bool = False


class Generation(Struct, frozen=True, kw_only=True):
    """One reading of a source partition, from the second on: its `number`, and the source offset at which it began.

    Nothing of it is published before `first_end`, the last stable offset of the source when it began, and never below
    `start`. Its records are in the output from `output_offset` on, which was the output's end then; None without an
    output.
    """

    number: int
    start: int
    first_end: int
    output_offset: int | None = None


class PartitionLog(OfPartition, Struct, frozen=True, kw_only=True):
    """The log of one source partition.

    `bucket` numbers the transactional id that publishes it. It changes only in a take-over, once every older
    transactional id is fenced: a partition that moved between two live ids would be published twice. `backlog_end` is
    the last stable offset when the partition was first seen; None once that is published. `output` is the newest commit
    of the output with source offset `published`, `base_output` the one at `clean_end`. `last_full_fold_ms` is the
    latest `now` of a clean; None is none yet. `ahead_ms` is when the worker began to send records above `published`;
    `behind_ms` is the same, or an earlier time, for records above `clean_end`: from then on a reader of the output may
    have seen some of them. None: nothing above was sent. `begun`: a fold was planned, so the output may hold records of
    the log; older versions did not write it. `sent_from` (publish.unchanged=skip): from this offset up to `published`,
    the output has each record that a fold has left, or before it one with the same key, value and headers; unset, and
    then not written: that is not known of any offset. `late_last` (compaction.order is a field): a digest of the key of
    the last record below `end`, if that was late; unset, and not written: it was not, or is not known.

    `generation` is None in the first one. A later one may begin with tombstones for the keys that the output held:
    they have the offsets from `start` up to 0, below every offset of the source. If the log was rebuilt, records of
    keys that live in the output by an earlier generation have such offsets.
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
    generation: Generation | None = None
    sent_from: int | UnsetType = UNSET
    late_last: str | UnsetType = UNSET

    @property
    def position(self) -> int:
        """The next source offset to publish: `published`, but never one of the tombstones a generation begins with."""
        return max(self.published, self.generation.start) if self.generation else self.published

    @property
    def may_be_sent(self) -> bool:
        """Whether the output may hold records of it, as far as the catalog knows; retention does not change that."""
        return self.begun or self.folded_end > self.start or self.output is not None

    @property
    def kept(self) -> tuple[Run, ...]:
        """All its runs, the base run first."""
        return (self.base, *self.runs) if self.base else self.runs

    @property
    def paths(self) -> frozenset[str]:
        """Paths of all files that the log still needs, of records and of their keys."""
        files = [file for run in self.kept for file in run.files]
        indexes = (file.index_path for file in files)
        return frozenset((*(file.path for file in files), *(path for path in indexes if path is not None)))


def empty(tp: TopicPartition, bucket: int, start: int, backlog_end: int | None) -> PartitionLog:
    """Returns a log that begins at source offset `start` and holds no records yet."""
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


def generation_of(log: PartitionLog) -> int:
    """Returns the number of the generation of `log`, from 1."""
    return log.generation.number if log.generation else 1


def first_end_of(log: PartitionLog) -> int | None:
    """Returns the offset below which no fold of `log` may end, as the output still holds its earlier generation.

    None if there is none: in the first generation, and once the present one was published up to that offset.
    """
    generation = log.generation
    return generation.first_end if generation and log.published < generation.first_end else None


def lost_by(log: PartitionLog) -> int:
    """Returns how many source offsets the newest generation of `log` has given up, until something of it is published.

    A process that begins a generation may end before anything counts what went with it.
    """
    waits = log.generation is not None and log.start == log.published <= log.generation.start
    return sum(gap.end - gap.start for gap in log.gaps) if waits else 0


def end_within(log: PartitionLog, offset: int) -> int:
    """Returns the largest offset up to `offset` at which a fold of `log` may end."""
    around = closed_run_around(log, offset)
    return around.start if around else offset


def end_beyond(log: PartitionLog, offset: int) -> int:
    """Returns the smallest offset from `offset` on at which a fold of `log` may end."""
    around = closed_run_around(log, offset)
    return around.end if around else offset


def closed_run_around(log: PartitionLog, offset: int) -> Run | None:
    """Returns the closed run that has `offset` inside it; None if a fold may end at `offset`."""
    for run in reversed(log.runs):  # by offset, and what is asked for mostly lies near the end
        if run.end <= offset:
            return None
        if run.start < offset:
            return run if run.is_closed else None
    return None


def without_indexes(log: PartitionLog, paths: Container[str]) -> PartitionLog:
    """Returns `log` as if no file of it was in the index files at `paths`."""

    def changed(run: Run) -> Run:
        files = (replace(file, index=None) if file.index_path in paths else file for file in run.files)
        return replace(run, files=tuple(files))

    base = changed(log.base) if log.base else None
    return replace(log, base=base, runs=tuple(map(changed, log.runs)))


def exact(run: Run) -> bool:
    """Returns whether the counts of `run` are exact: no file of it reaches beyond its offsets."""
    return all(run.start <= file.first and file.last < run.end for file in run.files)


def upper(run: Run, start: int) -> Run:
    """Returns `run` cut to offsets from `start` on; files that lie wholly below are no longer counted."""
    if run.start >= start:
        return run
    files = tuple(file for file in run.files if file.last >= start)
    records, size = sum(file.records for file in files), sum(file.bytes for file in files)
    return replace(run, start=start, end=max(run.end, start), files=files, records=records, bytes=size)


def lower(run: Run, end: int) -> Run:
    """Returns `run` cut to offsets below `end`; files that lie wholly from there on are no longer counted."""
    if run.end <= end:
        return run
    files = tuple(file for file in run.files if file.first < end)
    records, size = sum(file.records for file in files), sum(file.bytes for file in files)
    return replace(run, end=max(run.start, end), files=files, records=records, bytes=size)


def below(log: PartitionLog, end: int) -> PartitionLog:
    """Returns `log` with what it keeps of the offsets below `end`; its other fields stay."""
    base = lower(log.base, end) if log.base else None
    return replace(log, base=base, runs=tuple(lower(run, end) for run in log.runs if run.start < end))


def aged_from(smallest_timestamp_ms: int | None, arrived_ms: int) -> int:
    """Returns the time in ms from which the oldest of some records ages: its timestamp, at the latest its arrival.

    `smallest_timestamp_ms` is the smallest timestamp above 0 of records that arrived at `arrived_ms`; None if all
    are 0 or -1. KIP-354 leaves such records out; here they age from their arrival.
    """
    return arrived_ms if smallest_timestamp_ms is None else min(smallest_timestamp_ms, arrived_ms)
