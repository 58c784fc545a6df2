"""Decides up to which offset a log may be folded and sent: the first one inside min.compaction.lag.ms, or its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from compactor.model.log import PartitionLog, end_beyond, end_within, first_end_of
from compactor.model.position import ResumePoint
from compactor.model.record import TopicPartition
from compactor.runs.reader import read
from compactor.runs.scan import OffsetRange, between
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
    `first_young` takes a time in ms and returns the first offset from folded_end on with a younger record, or None; it
    is called only if there is a lag.

    A fold that has begun ends at the end that was planned, whatever clock and lag are now. With `bootstrap_fold`
    nothing more is publishable until the backlog that the partition had when it was first seen is ingested, so that a
    new output has each key once. A run that was folded when it was ingested, before there was a lag, is let go whole.
    The first fold of a later generation ends at `first_end_of` or beyond: a reader never sees the output in between.
    """
    end, first_end = log.end, first_end_of(log)
    if bootstrap_fold and log.backlog_end is not None and end < log.backlog_end:
        return log.folded_end
    if policy.min_compaction_lag_ms > 0 and log.folded_end < end:
        young = first_young(now_ms - policy.min_compaction_lag_ms)
        end = end if young is None else max(log.folded_end, end_within(log, young))
    return log.folded_end if first_end is not None and end < first_end else end


def next_fold_end(
    log: PartitionLog, resume: ResumePoint, settings: EngineSettings, now_ms: int, young: YoungRecords
) -> int:
    """Returns the offset at which the next fold of `log` ends (step 5). Raises StorageError.

    A fold that was sent in part ends at the end that was planned.
    """
    if resume.fold_end is not None:
        return end_beyond(log, resume.fold_end)
    return publishable(
        log,
        settings.policy,
        now_ms,
        lambda newest_ms: young.first(log, log.folded_end, newest_ms),
        bootstrap_fold=settings.bootstrap_fold_enable,
    )


class YoungRecords:
    """Finds the first young record of each log as `first_young` does, and reads nothing while it stays the first.

    An idle log is asked at every tick. What lies above folded_end only grows, at its end; so the record stays the first
    as long as it is young, for any earlier offset from which none before it was young.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        # By partition the first young record that was read last.
        self._known: dict[TopicPartition, _Young] = {}

    def first(self, log: PartitionLog, from_offset: int, newest_ms: int) -> int | None:
        """Returns what `first_young` does. Raises StorageError."""
        known = self._known.get(log.tp)
        if known is not None and known.answers(from_offset, newest_ms):
            return known.offset
        young = _first_young(self._storage, log, from_offset, newest_ms)
        if young is None:
            self._known.pop(log.tp, None)
            return None
        self._known[log.tp] = young
        return young.offset


class _Young(Struct, frozen=True, kw_only=True):
    """The first record from `from_offset` on that is younger than `newest_ms`: it is `offset`, and ages from `ms`."""

    from_offset: int
    newest_ms: int
    offset: int
    ms: int

    def answers(self, from_offset: int, newest_ms: int) -> bool:
        """Returns whether it is the first from another offset on as well, and at a time that is not earlier."""
        return self.from_offset <= from_offset <= self.offset and self.newest_ms <= newest_ms < self.ms


def first_young(storage: Storage, log: PartitionLog, from_offset: int, newest_ms: int) -> int | None:
    """Finds the first offset from `from_offset` on with a record younger than `newest_ms`; None if there is none.

    A record is never younger than its arrival: one that is stamped in the future would hold its partition up for ever.
    Runs that cannot hold a young record are not opened. Raises StorageError.
    """
    young = _first_young(storage, log, from_offset, newest_ms)
    return None if young is None else young.offset


def _first_young(storage: Storage, log: PartitionLog, from_offset: int, newest_ms: int) -> _Young | None:
    for run in between(log, from_offset, log.end).runs:
        if min(run.max_timestamp, run.arrived_ms) <= newest_ms:
            continue
        offsets = OffsetRange(tp=log.tp, start=from_offset, end=log.end, runs=(run,))
        for offset, timestamp in _young_rows(read(storage, offsets, ("offset", "timestamp")), newest_ms):
            ms = min(timestamp, run.arrived_ms)
            return _Young(from_offset=from_offset, newest_ms=newest_ms, offset=offset, ms=ms)
    return None


def _young_rows(batches: Iterable[pa.RecordBatch], newest_ms: int) -> Iterator[tuple[int, int]]:
    for batch in batches:
        row = pc.index(pc.greater(batch["timestamp"], newest_ms), True).as_py()
        if row >= 0:
            yield batch["offset"][row].as_py(), batch["timestamp"][row].as_py()
