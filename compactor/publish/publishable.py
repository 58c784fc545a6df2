"""Decides up to which offset a log may be folded and sent: the first one inside min.compaction.lag.ms, or its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from compactor.model.log import PartitionLog, end_beyond, end_within
from compactor.model.position import ResumePoint
from compactor.runs.reader import read
from compactor.runs.scan import between
from compactor.settings import CompactionPolicy, EngineSettings
from compactor.storage.base import Storage


def publishable(
    log: PartitionLog,
    policy: CompactionPolicy,
    now_ms: int,
    first_young: Callable[[int], int | None],
    *,
    bootstrap_fold: bool = True,
) -> int:
    """Returns the offset up to which `log` may be folded and sent at `now_ms`; never below folded_end.

    It is the first offset inside min.compaction.lag.ms, or the log's end (KIP-58, by record instead of by segment).
    `first_young` takes a time in ms and returns the first offset from folded_end on whose record is younger, or None;
    it is called only where there is a lag.

    A fold that has begun ends where it was planned to end, whatever clock and lag are now. With `bootstrap_fold`
    nothing more is publishable until the backlog that the partition had when it was first seen is ingested, so that a
    new output has each key once. A run that was folded when it was ingested, before there was a lag, is let go whole.
    """
    if bootstrap_fold and log.backlog_end is not None and log.end < log.backlog_end:
        return log.folded_end
    if policy.min_compaction_lag_ms <= 0 or log.folded_end >= log.end:
        return log.end
    young = first_young(now_ms - policy.min_compaction_lag_ms)
    return log.end if young is None else max(log.folded_end, end_within(log, young))


def next_fold_end(
    storage: Storage, log: PartitionLog, resume: ResumePoint, settings: EngineSettings, now_ms: int
) -> int:
    """Returns the offset at which the next fold of `log` ends (step 5). Raises StorageError.

    A fold that was sent in part ends where it was planned to end.
    """
    if resume.fold_end is not None:
        return end_beyond(log, resume.fold_end)
    return publishable(
        log,
        settings.policy,
        now_ms,
        lambda newest_ms: first_young(storage, log, log.folded_end, newest_ms),
        bootstrap_fold=settings.bootstrap_fold_enable,
    )


def first_young(storage: Storage, log: PartitionLog, from_offset: int, newest_ms: int) -> int | None:
    """Finds the first offset from `from_offset` on whose record is younger than `newest_ms`; None where none is.

    A record is never younger than its arrival: one that is stamped in the future would hold its partition up for ever.
    Runs that cannot hold a young record are not opened. Raises StorageError.
    """
    offsets = between(log, from_offset, log.end)
    young = tuple(run for run in offsets.runs if min(run.max_timestamp, run.arrived_ms) > newest_ms)
    return next(_young_offsets(read(storage, replace(offsets, runs=young), ("offset", "timestamp")), newest_ms), None)


def _young_offsets(batches: Iterable[pa.RecordBatch], newest_ms: int) -> Iterator[int]:
    for batch in batches:
        row = pc.index(pc.greater(batch["timestamp"], newest_ms), True).as_py()
        if row >= 0:
            yield batch["offset"][row].as_py()
