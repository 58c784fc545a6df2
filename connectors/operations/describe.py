"""Describes what a connector has taken in, sent and kept, without Spark, also of one that runs: `keyfold describe`.

The fields of Description are those of `describe --json` (docs/formats.md). Offsets are the next ones; times in ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog
from msgspec import UNSET, Struct
from msgspec.structs import replace

from compactor.catalog import owner_lock
from compactor.catalog.catalog import Catalog
from compactor.clean import schedule
from compactor.clean.due import CleaningDecision, quarantined
from compactor.clean.log_to_clean import LogToClean
from compactor.clean.topic_schedule import of_topics
from compactor.model.actions import AddSnapshot
from compactor.model.log import PartitionLog, Quarantined, first_end_of, generation_of
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, Topic
from compactor.model.times import earliest
from compactor.settings import EngineSettings
from compactor.snapshot import location
from compactor.snapshot.location import SnapshotFailure
from connectors.chain.order_field import shown
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.engine_settings import engine_settings, other_snapshots
from connectors.config.errors import FaultyConfigError
from connectors.config.fields import CONNECTOR_CLASS, is_connector_name
from connectors.config.files import load_valid_part, other_file
from connectors.config.secrets import logged_text
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.operations.source_ends import Ends, source_ends
from connectors.runtime import status
from connectors.runtime.status import StatusContent
from connectors.source.source_errors import DELETED, RECREATED, UNNAMED, left_out

FORMAT: Final = 1
# A worker says how it is every few seconds: after this time (ms) without a word it hangs, or cannot write.
STALE_MS: Final = 30_000

_log = structlog.get_logger()


class OwnerDescription(Struct, frozen=True, kw_only=True):
    """The connector's owner: `alive` if a worker holds it now; `name` and `epoch` of the last one."""

    alive: bool
    name: str
    epoch: int


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """What the worker last said of itself `age_ms` ago; `stale` if that is long ago, as it is said every few seconds.

    `waiting_since_ms` is when the outage began that it waits for; None if there is none.
    """

    state: str
    error: str | None
    failures: int
    next_restart_ms: int | None
    waiting_since_ms: int | None
    counters: Mapping[str, int]
    counted_since_ms: int | None
    updated_ms: int
    age_ms: int
    stale: bool


class SnapshotDescription(Struct, frozen=True, kw_only=True):
    """A snapshot of a topic."""

    id: str
    path: str
    created_ms: int
    records: int
    bytes: int
    source_offsets: Mapping[str, int]


class TopicDescription(Struct, frozen=True, kw_only=True):
    """A source topic; `closed` says why it is no longer read, `other_snapshots` are another catalog's in its folder.

    `changed`: what became of it since the connector last read it; None if nothing, or if no broker said.
    `truncate_order`: the value of compaction.order=field:PATH that its latest applied truncate has; None if none was.
    """

    topic: str
    topic_id: str
    output_topic: str | None
    output_topic_id: str | None
    closed: str | None
    changed: str | None
    newest_snapshot: SnapshotDescription | None
    other_snapshots: tuple[str, ...]
    truncate_order: str | None


class FoldDescription(Struct, frozen=True, kw_only=True):
    """What the cleaner would decide now, in a word and as a sentence; `due_ms`: since or from when, by time."""

    reason: str
    text: str
    due_ms: int | None


class PartitionDescription(Struct, frozen=True, kw_only=True):
    """A log. `source_end` and `lag` (source_end - published) are None if the broker did not say.

    A later `generation` was read again from `generation_start`; `waits_for` is the offset that it has to reach before
    any of it is published, None once it was. `first_horizon_ms` is the earliest delete horizon of its tombstones, None
    if none has one: a record that comes late (compaction.order) brings its key back once the key's tombstone is gone.
    """

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
    generation: int
    generation_start: int | None
    waits_for: int | None
    first_horizon_ms: int | None
    fold: FoldDescription
    quarantine: Quarantined | None


class Description(Struct, frozen=True, kw_only=True):
    """Everything; `broker_error` says why there are no source ends, `snapshots` why no snapshot can be written.

    `order` says which record of a key wins, as `compaction.order` does, and `scope` among which, as `compaction.scope`.
    """

    format_version: int
    connector: str
    catalog_id: str
    catalog_version: int
    order: str
    scope: str
    owner: OwnerDescription
    status: WorkerStatus | None
    broker_error: str | None
    snapshots: SnapshotFailure | None
    topics: tuple[TopicDescription, ...]
    partitions: tuple[PartitionDescription, ...]


def changed(state: CatalogState, ids: Mapping[str, str | None]) -> dict[str, str]:
    """Returns what became of the topics that have another id now, as the brokers say it, than the one that was read.

    The end of a partition of such a topic says nothing of our offsets.
    """
    others = {name: topic_id for name, topic_id in ids.items() if topic_id != state.topics[name].topic_id}
    news = {name: DELETED if topic_id is None else RECREATED for name, topic_id in others.items()}
    return {name: what for name, what in news.items() if state.topics[name].closed not in (what, UNNAMED)}


def topics(
    state: CatalogState, others: Mapping[str, tuple[str, ...]], news: Mapping[str, str]
) -> tuple[TopicDescription, ...]:
    """Describes all topics, by name; `others` are the snapshots of other catalogs by topic, `news` as of `changed`."""
    return tuple(
        _topic(state, topic, others.get(name, ()), news.get(name)) for name, topic in sorted(state.topics.items())
    )


def partitions(
    state: CatalogState, ends: Mapping[TopicPartition, int], settings: EngineSettings, now_ms: int
) -> tuple[PartitionDescription, ...]:
    """Describes all logs, by topic and partition; `ends` are the source's last stable offsets, as far as known."""
    logs = sorted(state.logs, key=lambda log: log.tp)
    decisions = schedule.evaluate_all(logs, settings.policy, settings.fold, now_ms, quarantined(logs))
    if state.is_of_topics:
        by_log = {decision.tp: decision for decision in of_topics(state, decisions)}
        decisions = tuple(by_log[log.tp] for log in logs)
    return tuple(_partition(log, ends.get(log.tp), each) for log, each in zip(logs, decisions, strict=True))


def worker_status(content: StatusContent | None, now_ms: int) -> WorkerStatus | None:
    """Describes the content of status.json; None if there is none."""
    if content is None:
        return None
    return WorkerStatus(
        state=content.state,
        error=logged_text(content.error) if content.error else None,
        failures=content.failures,
        next_restart_ms=content.next_restart_ms,
        waiting_since_ms=content.waiting_since_ms,
        counters=content.counters,
        counted_since_ms=content.counted_since_ms,
        updated_ms=content.updated_ms,
        age_ms=max(0, now_ms - content.updated_ms),
        stale=now_ms - content.updated_ms > STALE_MS,
    )


def _without_secrets(trouble: SnapshotFailure | None) -> SnapshotFailure | None:
    """Returns `trouble` as it may be shown: its error is what a store's client said."""
    return None if trouble is None else replace(trouble, error=logged_text(trouble.error))


def _topic(state: CatalogState, topic: Topic, others: tuple[str, ...], news: str | None) -> TopicDescription:
    taken = state.snapshots_of(topic.topic)
    return TopicDescription(
        topic=topic.topic,
        topic_id=topic.topic_id,
        output_topic=topic.output,
        output_topic_id=topic.output_id,
        closed=topic.closed,
        changed=news,
        newest_snapshot=_snapshot(taken[-1]) if taken else None,
        other_snapshots=others,
        truncate_order=None if topic.fence is UNSET else shown(topic.fence.value),
    )


def _snapshot(taken: AddSnapshot) -> SnapshotDescription:
    return SnapshotDescription(
        id=taken.id,
        path=taken.path,
        created_ms=taken.created_ms,
        records=taken.records,
        bytes=taken.bytes,
        source_offsets=taken.source_offsets,
    )


def _partition(log: PartitionLog, source_end: int | None, decision: CleaningDecision) -> PartitionDescription:
    kept = (log.base, *log.runs) if log.base else log.runs
    start = log.generation.start if log.generation else None
    return PartitionDescription(
        topic=log.topic,
        partition=log.partition,
        source_end=source_end,
        ingested=log.end,
        published=log.position,
        clean_end=max(log.clean_end, start) if start is not None else log.clean_end,
        lag=None if source_end is None else max(0, source_end - log.position),
        runs=len(kept),
        records=sum(run.records for run in kept),
        bytes=sum(run.bytes for run in kept),
        dirty_ratio=LogToClean.of(log).ratio,
        tombstones=sum(run.tombstones for run in kept),
        rejected=sum(run.rejected for run in kept),
        lost_offsets=sum(gap.end - gap.start for gap in log.gaps),
        generation=generation_of(log),
        generation_start=start,
        waits_for=first_end_of(log),
        first_horizon_ms=earliest(*(run.next_horizon_ms for run in kept)),
        fold=FoldDescription(reason=decision.reason.value, text=decision.text, due_ms=decision.due_ms),
        quarantine=log.quarantine and replace(log.quarantine, error=logged_text(log.quarantine.error)),
    )


def describe(worker: WorkerConfig, path: Path, clock: Clock) -> tuple[Description, int, str]:
    """Describes the connector of the file `path`; returns that, its time (ms) and the location of its storage.

    What is not valid in the file is left out with a warning if anything is kept of the connector. Raises
    FaultyConfigError if nothing is; StorageError, CatalogError.
    """
    try:
        settings, faults = load_valid_part(path, worker)
        catalog = Catalog.open(connector_storage(worker, settings.name), settings.name)
    except FaultyConfigError as error:
        (settings, catalog), faults = _by_file_name(path, worker, error), None
    if faults is not None and catalog.version == 0:
        raise faults
    if faults is not None:
        _log.warning("connector file is not valid; described without the settings that are not", error=str(faults))
    state = catalog.state
    # The ends of topics of their names now say nothing of our offsets, unless only a record of them was bad.
    closed = {name for name in left_out(state) if not state.topics[name].is_rejected}
    ends = source_ends(worker, settings, [log.tp for log in state.logs if log.topic not in closed])
    now_ms = clock.now_ms()
    others = other_snapshots(worker, settings, catalog.state)
    return describing(catalog, settings, ends, others, now_ms), now_ms, catalog.storage.location


def _by_file_name(path: Path, worker: WorkerConfig, faults: FaultyConfigError) -> tuple[ConnectorConfig, Catalog]:
    """Returns the connector of a file that says nothing usable: with the topics in its catalog, and defaults.

    It may run with what the file said before. Its name is the one in the file, else the file's own. Raises `faults` if
    nothing is kept under that name, or no file is there.
    """
    name = other_file(path).name or path.stem
    if not path.is_file() or not is_connector_name(name):
        raise faults
    catalog = Catalog.open(connector_storage(worker, name), name)
    topics = sorted({kept.topic for kept in catalog.state.logs})
    if not topics:
        raise faults
    _log.warning(
        "connector file cannot be read; described by its file's name, with default settings",
        connector=name,
        error=str(faults),
    )
    given = {"name": name, "connector.class": CONNECTOR_CLASS, "topics": ",".join(topics), "output.topic": "none"}
    return ConnectorConfig.model_validate(given), catalog


def describing(
    catalog: Catalog,
    connector: ConnectorConfig,
    ends: Ends,
    others: Mapping[str, tuple[str, ...]],
    now_ms: int,
) -> Description:
    """Describes `connector` from its catalog and folder, the broker's answer, and snapshots of `others` by topic."""
    storage, state = catalog.storage, catalog.state
    news = changed(state, ends.ids)
    offsets = {tp: end for tp, end in ends.offsets.items() if tp.topic not in news}
    return Description(
        format_version=FORMAT,
        connector=connector.name,
        catalog_id=state.catalog_id,
        catalog_version=catalog.version,
        order=state.order,
        scope=state.scope,
        owner=OwnerDescription(
            alive=owner_lock.is_alive(storage), name=owner_lock.shown(state.owner), epoch=state.epoch
        ),
        status=worker_status(status.read(storage), now_ms),
        broker_error=logged_text(ends.error) if ends.error else None,
        snapshots=_without_secrets(location.read_note(storage)),
        topics=topics(state, others, news),
        partitions=partitions(state, offsets, engine_settings(connector), now_ms),
    )
