"""What `keyfold describe` says of a connector: first as values, then as text for people. Pure.

The values' fields are those of `describe --json` (docs/formats.md). Offsets are the next ones; times in ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import humanize
from msgspec import Struct

from compactor.clean import schedule
from compactor.clean.due import CleaningDecision, Reason, quarantined
from compactor.clean.log_to_clean import LogToClean
from compactor.model.actions import AddSnapshot
from compactor.model.log import PartitionLog, Quarantined, first_end_of, generation_of
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, Topic
from compactor.model.times import moment
from compactor.settings import EngineSettings
from compactor.snapshot.location import SnapshotFailure
from connectors.progress.terminal import table
from connectors.runtime.status import ConnectorState
from connectors.source.source_errors import DELETED, FAULTS, RECREATED, UNNAMED, advice

FORMAT: Final = 1
STALE_MS: Final = 30_000
_PARTITION_HEADERS: Final = (
    *("TOPIC", "PARTITION", "SOURCE END", "INGESTED", "PUBLISHED", "LAG", "CLEAN END"),
    *("RUNS", "RECORDS", "BYTES", "DIRTY", "TOMBSTONES", "REJECTED", "LOST", "FOLD"),
)

_STARTED_AGAIN: Final = (ConnectorState.RUNNING, ConnectorState.RESTARTING)
_IDLE: Final = (Reason.NOTHING.value, Reason.TOMBSTONES.value)
_UNPUBLISHED: Final = "waits for publish"
_COUNTED: Final[Mapping[str, tuple[str, ...]]] = {
    "read": (
        "batches",
        "offsets_read",
        "records_read",
        "bytes_read",
        "records_superseded",
        "records_filtered",
        "offsets_lost",
    ),
    "published": ("transactions", "transactions_aborted", "records_published", "bytes_published"),
    "left out": ("records_rejected", "records_refused", "dead_letters"),
    "folded": (
        *("full_folds", "merges", "fold_bytes_read", "fold_bytes_written", "fold_records_removed"),
        *("fold_jobs", "fold_ms", "retentions"),
    ),
}
"""The counters of each line in which they are shown."""


class OwnerDescription(Struct, frozen=True, kw_only=True):
    """The connector's owner: `alive` where a worker holds it now; `name` and `epoch` of the last one."""

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

    `changed`: what became of it since the connector last read it; None where nothing, or where no broker said.
    """

    topic: str
    topic_id: str
    output_topic: str | None
    output_topic_id: str | None
    closed: str | None
    changed: str | None
    newest_snapshot: SnapshotDescription | None
    other_snapshots: tuple[str, ...]


class FoldDescription(Struct, frozen=True, kw_only=True):
    """What the cleaner would decide now, in a word and as a sentence; `due_ms`: since or from when, by time."""

    reason: str
    text: str
    due_ms: int | None


class PartitionDescription(Struct, frozen=True, kw_only=True):
    """A log. `source_end` and `lag` (source_end - published) are None where the broker did not say.

    A later `generation` was read anew from `generation_start`; `waits_for` is the offset that it has to reach before
    any of it is published, None once it was.
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
    fold: FoldDescription
    quarantine: Quarantined | None


class Description(Struct, frozen=True, kw_only=True):
    """Everything; `broker_error` says why there are no source ends, `snapshots` why no snapshot can be written."""

    format_version: int
    connector: str
    catalog_id: str
    catalog_version: int
    owner: OwnerDescription
    status: WorkerStatus | None
    broker_error: str | None
    snapshots: SnapshotFailure | None
    topics: tuple[TopicDescription, ...]
    partitions: tuple[PartitionDescription, ...]


def changed(state: CatalogState, ids: Mapping[str, str | None]) -> dict[str, str]:
    """Returns what became of the topics whose id, as the brokers say it now, is not the one that was read.

    Where a partition of such a topic ends says nothing of our offsets.
    """
    others = {name: found for name, found in ids.items() if found != state.topics[name].topic_id}
    news = {name: DELETED if found is None else RECREATED for name, found in others.items()}
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
    found = schedule.evaluate_all(logs, settings.policy, settings.fold, now_ms, quarantined(logs))
    return tuple(_partition(log, ends.get(log.tp), one) for log, one in zip(logs, found, strict=True))


def status(found: Mapping[str, Any] | None, now_ms: int) -> WorkerStatus | None:
    """Describes the content of status.json; a field that is missing reads as nothing."""
    if found is None:
        return None
    updated_ms = int(found.get("updated_ms", 0))
    return WorkerStatus(
        state=str(found.get("state", "UNASSIGNED")),
        error=found.get("error"),
        failures=int(found.get("failures", 0)),
        next_restart_ms=found.get("next_restart_ms"),
        waiting_since_ms=found.get("waiting_since_ms"),
        counters=dict(found.get("counters", {})),
        counted_since_ms=found.get("counted_since_ms"),
        updated_ms=updated_ms,
        age_ms=max(0, now_ms - updated_ms),
        stale=now_ms - updated_ms > STALE_MS,
    )


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


def _partition(log: PartitionLog, source_end: int | None, found: CleaningDecision) -> PartitionDescription:
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
        fold=_fold(found),
        quarantine=log.quarantine,
    )


def _fold(found: CleaningDecision) -> FoldDescription:
    return FoldDescription(reason=found.reason.value, text=found.text, due_ms=found.due_ms)


def text(description: Description, now_ms: int, location: str) -> str:
    """Returns the whole text, its sections parted by an empty line; `location` is the connector's folder."""
    sections = [list(_head(description, now_ms, location))]
    if description.topics:
        sections.append([_topics_table(description.topics)])
    if description.partitions:
        sections.append([_partitions_table(description.partitions)])
    if begun := list(_generations_begun(description.partitions)):
        sections.append(begun)
    if held := [*_closed_topics(description.topics), *_partitions_aside(description.partitions)]:
        sections.append(held)
    return "\n\n".join("\n".join(section) for section in sections)


def _head(description: Description, now_ms: int, location: str) -> Iterator[str]:
    if description.catalog_version == 0:
        yield f"Connector {description.connector} keeps nothing here: there is no catalog in {location}."
        yield "It has not run yet, or its storage is lost or elsewhere (docs/operating.md says what to do then)."
    else:
        owner = description.owner
        lives = "a worker is running" if owner.alive else "no worker is running"
        yield f"Connector {description.connector}: {lives}; last owner {owner.name}, epoch {owner.epoch}"
    if description.status is not None:
        yield from _status_lines(description.status, now_ms, alive=description.owner.alive)
    if description.topics and all(topic.closed or topic.changed for topic in description.topics):
        yield "It reads nothing: each of its source topics is gone, set aside or no longer named."
    if description.broker_error is not None:
        yield f"Source ends unknown: {description.broker_error}"
    for topic in description.topics:
        if topic.other_snapshots:
            yield other_snapshots_line(topic.topic, topic.other_snapshots)
    if trouble := description.snapshots:
        yield f"No snapshot since {moment(trouble.since_ms)}, {trouble.failures} failed: {trouble.error}"
        yield f"  tried again at {moment(trouble.retry_ms)}; everything else goes on"


def other_snapshots_line(topic: str, ids: Sequence[str]) -> str:
    """Returns a line about the snapshots `ids` of `topic`, which are not of the connector's catalog."""
    return f"Snapshots of {topic} that are another catalog's, and left as they are: {', '.join(ids)}"


def _status_lines(status: WorkerStatus, now_ms: int, *, alive: bool) -> Iterator[str]:
    ago = f"{_ago(status.age_ms)} ago"
    if status.state == "STOPPED" or (alive and not status.stale):
        yield f"State: {status.state}, said {ago}"
    elif alive:
        yield f"State: not known; the worker that is running said {status.state} {ago} (stale), and nothing since"
        yield "  Its storage may be full or away, or it hangs: see its log, and keyfold connectors show."
    else:
        yield f"State: none, as no worker is running; the last one said {status.state} {ago}"
    if status.error is not None:
        yield f"Error: {status.error}"
    if status.waiting_since_ms is not None and status.error is not None:
        outage = _ago(now_ms - status.waiting_since_ms)
        yield f"Waits: what the error names has not answered since {moment(status.waiting_since_ms)}, {outage}"
    if status.next_restart_ms is not None:
        yield f"Restart: after {status.failures} failures, by {moment(status.next_restart_ms)}"
    elif status.failures and status.state in _STARTED_AGAIN:
        yield f"Restarts: {status.failures} in a row; forgotten once it has worked"
    if counted := list(_counted(status.counters)):
        since = "it was started" if status.counted_since_ms is None else moment(status.counted_since_ms)
        yield f"Counted since {since}:"
        yield from counted


def _counted(counters: Mapping[str, int]) -> Iterator[str]:
    """Yields a line for each kind of work, with what was counted of it and is not 0; names that are new come last."""
    grouped = {name for names in _COUNTED.values() for name in names}
    groups = {**_COUNTED, "other": tuple(name for name in counters if name not in grouped)}
    for group, names in groups.items():
        counts = [f"{name.replace('_', ' ')} {counters[name]:,}" for name in names if counters.get(name)]
        if counts:
            yield f"  {group + ':':<11}{', '.join(counts)}"


def _topics_table(topics: tuple[TopicDescription, ...]) -> str:
    return table(
        ("TOPIC", "OUTPUT", "READ", "NEWEST SNAPSHOT", "TAKEN", "RECORDS"), [_topic_row(topic) for topic in topics]
    )


def _topic_row(topic: TopicDescription) -> tuple[object, ...]:
    taken = topic.newest_snapshot
    snapshot = (taken.id, moment(taken.created_ms), taken.records) if taken else (None, None, None)
    return (topic.topic, topic.output_topic, _read_word(topic), *snapshot)


def _read_word(topic: TopicDescription) -> str:
    """Returns whether a topic is read, and why not: what the brokers say now comes before what was found last."""
    if topic.changed:
        return f"no: {topic.changed} since"
    return f"no: {topic.closed}" if topic.closed else "yes"


def _partitions_table(partitions: tuple[PartitionDescription, ...]) -> str:
    return table(_PARTITION_HEADERS, [_partition_row(each) for each in partitions])


def _partition_row(one: PartitionDescription) -> tuple[object, ...]:
    place = (one.topic, one.partition, one.source_end, one.ingested, one.published, one.lag, one.clean_end)
    kept = (one.runs, one.records, one.bytes, one.dirty_ratio, one.tombstones, one.rejected, one.lost_offsets)
    return (*place, *kept, _fold_word(one))


def _fold_word(one: PartitionDescription) -> str:
    """Returns the decision in a word; where only unpublished records could be folded, that it waits for them."""
    return _UNPUBLISHED if one.fold.reason in _IDLE and one.lag else one.fold.reason


def _generations_begun(partitions: tuple[PartitionDescription, ...]) -> Iterator[str]:
    """Yields the partitions whose output still holds their earlier generation, each with how far it is."""
    for one in partitions:
        if one.waits_for is not None:
            yield (
                f"Generation {one.generation} of {one.topic}-{one.partition} is read from offset "
                f"{one.generation_start}, up to {one.ingested} now. The output stays as it is until {one.waits_for} is "
                "reached."
            )


def _closed_topics(topics: tuple[TopicDescription, ...]) -> Iterator[str]:
    """Yields the topics that are closed as they cannot be read on, each with what can be done about it."""
    for one in topics:
        if one.changed:
            yield f"Topic {one.topic} was {one.changed} since the connector last read it: its lag is not known."
            yield "  If the connector is RUNNING, it finds out within half a minute; otherwise its next start does."
        elif one.closed is not None and one.closed in FAULTS:
            yield f"Set aside: topic {one.topic}, {FAULTS[one.closed]}; neither read nor published any more."
            yield f"  {advice(one.closed)}"


def _partitions_aside(partitions: tuple[PartitionDescription, ...]) -> Iterator[str]:
    """Yields the partitions that are set aside, each with its error."""
    for one in partitions:
        if held := one.quarantine:
            what = "not folded, nothing more of it is published" if held.publishing else "not folded"
            yield f"Set aside since {moment(held.since_ms)}: {one.topic}-{one.partition}, {what}. {held.error}"
            yield f"  failed {held.failures} times; looked at again at {moment(held.retry_ms)}"


def _ago(ms: int) -> str:
    return humanize.precisedelta(timedelta(seconds=max(0, ms) // 1000))
