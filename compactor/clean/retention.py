"""Retention: with `delete` in cleanup.policy a log loses its old end, by time and by size (`UnifiedLog`, KIP-71).

As in Kafka it takes whole segments, which here are the files of runs: from the old end, up to the first that
does not qualify, never past published. It asks for the largest timestamp of a segment and for nothing else: the
only value of a key expires too. With `delete` alone the segments are those of the raw runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from itertools import takewhile
from typing import Final

from msgspec import Struct

from compactor.model.actions import Retain
from compactor.model.log import PartitionLog, Run, RunFile
from compactor.model.record import TopicPartition
from compactor.settings import CompactionPolicy


class Cause(Enum):
    """Why the start of a log moves, or why not."""

    OFF = "off"
    TIME = "retention.ms"
    SIZE = "retention.bytes"
    KEPT = "kept"


_TEXTS: Final = {
    Cause.OFF: "Nothing expires: cleanup.policy has no delete, or neither retention.ms nor retention.bytes is set.",
    Cause.TIME: "{segments} files, {bytes} bytes, are older than retention.ms: the log starts at {start}.",
    Cause.SIZE: "{segments} files, {bytes} bytes, are beyond retention.bytes: the log starts at {start}.",
    Cause.KEPT: "Nothing expires now.",
}


class Retention(Struct, frozen=True, kw_only=True):
    """The `start` that a log is to have, and how many segments and bytes go with it."""

    tp: TopicPartition
    start: int
    cause: Cause
    segments: int = 0
    bytes: int = 0

    @property
    def text(self) -> str:
        """The cause as a sentence."""
        return _TEXTS[self.cause].format(segments=self.segments, bytes=self.bytes, start=self.start)

    @property
    def action(self) -> Retain | None:
        """What to commit; None if nothing expires."""
        if not self.segments:
            return None
        return Retain(topic=self.tp.topic, partition=self.tp.partition, start=self.start)


class _Segment(Struct, frozen=True):
    """One file of a log: `end` is the start of a log without it; `newest_ms` its largest timestamp, clamped."""

    end: int
    bytes: int
    newest_ms: int


def evaluate_retention(log: PartitionLog, policy: CompactionPolicy, now_ms: int) -> Retention:
    """Decides the start of `log` at `now_ms` (`UnifiedLog.deleteOldSegments`), by the limit that takes more."""
    if not policy.deletes or (policy.retention_ms < 0 and policy.retention_bytes < 0):
        return Retention(tp=log.tp, start=log.start, cause=Cause.OFF)
    segments = tuple(_segments(log))
    # All files of the log, unpublished ones too, as Kafka counts the whole log.
    log_size = sum(_bytes(run, file) for run in log.kept for file in run.files)
    by_size = _beyond(segments, log_size, policy.retention_bytes)
    by_time = tuple(takewhile(lambda segment: 0 <= policy.retention_ms < now_ms - segment.newest_ms, segments))
    gone, cause = (by_size, Cause.SIZE) if len(by_size) > len(by_time) else (by_time, Cause.TIME)
    if not gone:
        return Retention(tp=log.tp, start=log.start, cause=Cause.KEPT)
    size = sum(segment.bytes for segment in gone)
    return Retention(tp=log.tp, start=gone[-1].end, cause=cause, segments=len(gone), bytes=size)


def expiring(
    logs: Iterable[PartitionLog], policy: CompactionPolicy, now_ms: int, busy: Collection[TopicPartition]
) -> tuple[Retention, ...]:
    """Decides on all `logs` but `busy` ones, quarantined ones too; returns those that lose something at `now_ms`."""
    decisions = (evaluate_retention(log, policy, now_ms) for log in logs if log.tp not in busy)
    return tuple(decision for decision in decisions if decision.segments)


def _beyond(segments: Iterable[_Segment], size: int, limit: int) -> tuple[_Segment, ...]:
    """Returns the oldest segments without which the log still has `limit` bytes; -1 is no limit."""
    gone: list[_Segment] = []
    for segment in segments if limit >= 0 else ():
        size -= segment.bytes
        if size < limit:
            break
        gone.append(segment)
    return tuple(gone)


def _bytes(run: Run, file: RunFile) -> int:
    """Returns the bytes that `file` holds of `run`; 0 if a part of it is in the base run: rather more is kept."""
    return file.bytes if run.start <= file.first else 0


def _segments(log: PartitionLog) -> Iterator[_Segment]:
    """Yields the segments from the old end that lie wholly below published."""
    for run in log.kept:
        for file in sorted(run.files, key=lambda file: file.first):
            last = min(file.last, run.end - 1)
            if last >= log.published:
                return
            newest_ms = run.max_timestamp if file.newest_ms is None else file.newest_ms
            aged_ms = min(newest_ms, run.arrived_ms) if newest_ms >= 0 else run.arrived_ms
            yield _Segment(last + 1, _bytes(run, file), aged_ms)
