"""What `keyfold describe` says of a connector, as values; pure.

The fields are those of `describe --json` (docs/formats.md). Offsets are the next ones; times in ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from compactor.clean import schedule
from compactor.clean.decision import CleaningDecision, quarantined
from compactor.clean.log_to_clean import LogToClean
from compactor.model.actions import AddSnapshot
from compactor.model.log import PartitionLog, Quarantined
from compactor.model.record import TopicPartition
from compactor.model.state import State, Topic
from compactor.settings import EngineSettings
from compactor.snapshot.location import SnapshotFailure

FORMAT: Final = 1
STALE_MS: Final = 30_000


class Owner(Struct, frozen=True, kw_only=True):
    """Who owns the connector: `alive` where a worker holds it now; `name` and `epoch` of the last one."""

    alive: bool
    name: str
    epoch: int


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """What the worker last said of itself; `stale` where that is long ago."""

    state: str
    error: str | None
    failures: int
    next_restart_ms: int | None
    counters: Mapping[str, int]
    counted_since_ms: int | None
    updated_ms: int
    stale: bool


class Snapshot(Struct, frozen=True, kw_only=True):
    """A snapshot of a topic."""

    id: str
    path: str
    created_ms: int
    records: int
    bytes: int
    source_offsets: Mapping[str, int]


class TopicDescription(Struct, frozen=True, kw_only=True):
    """A source topic; `closed` says why it is no longer read, `other_snapshots` are another catalog's in its folder."""

    topic: str
    topic_id: str
    output_topic: str | None
    output_topic_id: str | None
    closed: str | None
    newest_snapshot: Snapshot | None
    other_snapshots: tuple[str, ...]


class Fold(Struct, frozen=True, kw_only=True):
    """What the cleaner would decide now, in a word and as a sentence; `due_ms`: since or from when, by time."""

    reason: str
    text: str
    due_ms: int | None


class PartitionDescription(Struct, frozen=True, kw_only=True):
    """A log. `source_end` and `lag` (source_end - published) are None where the broker did not say."""

    topic: str
    partition: int
    source_end: int | None
    ingested: int
    published: int
    clean_end: int
    lag: int | None
    runs: int
    records: int
    bytes: int
    dirty_ratio: float
    tombstones: int
    rejected: int
    lost_offsets: int
    fold: Fold
    quarantine: Quarantined | None


class Description(Struct, frozen=True, kw_only=True):
    """Everything; `broker_error` says why there are no source ends, `snapshots` why no snapshot can be written."""

    format_version: int
    connector: str
    catalog_id: str
    catalog_version: int
    owner: Owner
    status: WorkerStatus | None
    broker_error: str | None
    snapshots: SnapshotFailure | None
    topics: tuple[TopicDescription, ...]
    partitions: tuple[PartitionDescription, ...]


def topics(state: State, others: Mapping[str, tuple[str, ...]]) -> tuple[TopicDescription, ...]:
    """All topics by name; `others` are the snapshots of other catalogs by topic."""
    return tuple(_topic(state, state.topics[name], others.get(name, ())) for name in sorted(state.topics))


def partitions(
    state: State, ends: Mapping[TopicPartition, int], settings: EngineSettings, now_ms: int
) -> tuple[PartitionDescription, ...]:
    """All logs by topic and partition; `ends` are the source's last stable offsets, as far as they are known."""
    logs = sorted(state.logs, key=lambda log: log.tp)
    found = schedule.evaluate_all(logs, settings.policy, settings.fold, now_ms, quarantined(logs))
    return tuple(_partition(log, ends.get(log.tp), one) for log, one in zip(logs, found, strict=True))


def status(found: Mapping[str, Any] | None, now_ms: int) -> WorkerStatus | None:
    """The content of status.json; a field that is missing reads as nothing."""
    if found is None:
        return None
    updated_ms = int(found.get("updated_ms", 0))
    return WorkerStatus(
        state=str(found.get("state", "UNASSIGNED")),
        error=found.get("error"),
        failures=int(found.get("failures", 0)),
        next_restart_ms=found.get("next_restart_ms"),
        counters=dict(found.get("counters", {})),
        counted_since_ms=found.get("counted_since_ms"),
        updated_ms=updated_ms,
        stale=now_ms - updated_ms > STALE_MS,
    )


def _topic(state: State, topic: Topic, others: tuple[str, ...]) -> TopicDescription:
    taken = [snapshot for snapshot in state.snapshots if snapshot.topic == topic.topic]
    return TopicDescription(
        topic=topic.topic,
        topic_id=topic.topic_id,
        output_topic=topic.output,
        output_topic_id=topic.output_id,
        closed=topic.closed,
        newest_snapshot=_snapshot(taken[-1]) if taken else None,
        other_snapshots=others,
    )


def _snapshot(taken: AddSnapshot) -> Snapshot:
    return Snapshot(
        id=taken.id,
        path=taken.path,
        created_ms=taken.created_ms,
        records=taken.records,
        bytes=taken.bytes,
        source_offsets=taken.source_offsets,
    )


def _partition(log: PartitionLog, source_end: int | None, found: CleaningDecision) -> PartitionDescription:
    kept = (log.base, *log.runs) if log.base else log.runs
    return PartitionDescription(
        topic=log.topic,
        partition=log.partition,
        source_end=source_end,
        ingested=log.end,
        published=log.published,
        clean_end=log.clean_end,
        lag=None if source_end is None else max(0, source_end - log.published),
        runs=len(kept),
        records=sum(run.records for run in kept),
        bytes=sum(run.bytes for run in kept),
        dirty_ratio=LogToClean.of(log).ratio,
        tombstones=sum(run.tombstones for run in kept),
        rejected=sum(run.rejected for run in kept),
        lost_offsets=sum(gap.end - gap.start for gap in log.gaps),
        fold=_fold(found),
        quarantine=log.quarantine,
    )


def _fold(found: CleaningDecision) -> Fold:
    return Fold(reason=found.reason.value, text=found.text, due_ms=found.due_ms)
