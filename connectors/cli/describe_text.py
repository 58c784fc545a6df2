"""`keyfold describe` for people: a few lines and two tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import humanize

from compactor.clean.decision import Reason
from connectors.cli.description import Description, PartitionDescription, TopicDescription, WorkerStatus
from connectors.progress.terminal import table
from connectors.runtime.status import ConnectorState
from connectors.source.source_errors import FAULTS, advice

_PARTITIONS: Final = (
    *("TOPIC", "PARTITION", "SOURCE END", "INGESTED", "PUBLISHED", "LAG", "CLEAN END"),
    *("RUNS", "RECORDS", "BYTES", "DIRTY", "TOMBSTONES", "REJECTED", "LOST", "FOLD"),
)

_STARTED_AGAIN: Final = (ConnectorState.RUNNING, ConnectorState.RESTARTING)
_IDLE: Final = (Reason.NOTHING.value, Reason.TOMBSTONES.value)
_UNPUBLISHED: Final = "waits for publish"


def text(description: Description, now_ms: int, location: str) -> str:
    """Everything, sections parted by an empty line; `location` is the connector's folder."""
    sections = [list(_head(description, now_ms, location))]
    if description.topics:
        sections.append([_topics(description.topics)])
    if description.partitions:
        sections.append([_partitions(description.partitions)])
    if held := [*_closed_topics(description.topics), *_aside(description.partitions)]:
        sections.append(held)
    return "\n\n".join("\n".join(section) for section in sections)


def _head(description: Description, now_ms: int, location: str) -> Iterator[str]:
    if description.catalog_version == 0:
        yield f"Connector {description.connector} has not run yet: there is no catalog in {location}."
    else:
        owner = description.owner
        lives = "a worker is running" if owner.alive else "no worker is running"
        yield f"Connector {description.connector}: {lives}; last owner {owner.name}, epoch {owner.epoch}"
    if description.status is not None:
        yield from _status(description.status, now_ms)
    if description.broker_error is not None:
        yield f"Source ends unknown: {description.broker_error}"
    for topic in description.topics:
        if topic.other_snapshots:
            yield others(topic.topic, topic.other_snapshots)
    if trouble := description.snapshots:
        yield f"No snapshot since {_time(trouble.since_ms)}, {trouble.failures} failed: {trouble.error}"
        yield f"  tried again at {_time(trouble.retry_ms)}; everything else goes on"


def others(topic: str, ids: Sequence[str]) -> str:
    """A line about the snapshots `ids` of `topic`, which are not of the connector's catalog."""
    return f"Snapshots of {topic} that are another catalog's, and left as they are: {', '.join(ids)}"


def _status(status: WorkerStatus, now_ms: int) -> Iterator[str]:
    stale = " (stale)" if status.stale else ""
    yield f"State: {status.state}, said {_ago(now_ms - status.updated_ms)} ago{stale}"
    if status.error is not None:
        yield f"Error: {status.error}"
    if status.next_restart_ms is not None:
        yield f"Restart: after {status.failures} failures, by {_time(status.next_restart_ms)}"
    elif status.failures and status.state in _STARTED_AGAIN:
        yield f"Restarts: {status.failures} in a row; forgotten once it has worked"
    counted = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in status.counters.items() if count)
    if counted:
        since = "it was started" if status.counted_since_ms is None else _time(status.counted_since_ms)
        yield f"Counted since {since}: {counted}"


def _topics(topics: tuple[TopicDescription, ...]) -> str:
    return table(
        ("TOPIC", "OUTPUT", "READ", "NEWEST SNAPSHOT", "TAKEN", "RECORDS"), [_topic(topic) for topic in topics]
    )


def _topic(topic: TopicDescription) -> tuple[object, ...]:
    taken = topic.newest_snapshot
    snapshot = (taken.id, _time(taken.created_ms), taken.records) if taken else (None, None, None)
    return (topic.topic, topic.output_topic, f"no: {topic.closed}" if topic.closed else "yes", *snapshot)


def _partitions(partitions: tuple[PartitionDescription, ...]) -> str:
    return table(_PARTITIONS, [_partition(each) for each in partitions])


def _partition(one: PartitionDescription) -> tuple[object, ...]:
    place = (one.topic, one.partition, one.source_end, one.ingested, one.published, one.lag, one.clean_end)
    kept = (one.runs, one.records, one.bytes, one.dirty_ratio, one.tombstones, one.rejected, one.lost_offsets)
    return (*place, *kept, _fold(one))


def _fold(one: PartitionDescription) -> str:
    """The verdict in a word; where only what is not published yet could be folded, that is what it waits for."""
    return _UNPUBLISHED if one.fold.reason in _IDLE and one.lag else one.fold.reason


def _closed_topics(topics: tuple[TopicDescription, ...]) -> Iterator[str]:
    """The topics that are closed as they cannot be read on, each with what can be done about it."""
    for one in topics:
        if one.closed is not None and one.closed in FAULTS:
            yield f"Set aside: topic {one.topic}, {FAULTS[one.closed]}; neither read nor published any more."
            yield f"  {advice(one.closed)}"


def _aside(partitions: tuple[PartitionDescription, ...]) -> Iterator[str]:
    """The partitions that are set aside, each with its error."""
    for one in partitions:
        if held := one.quarantine:
            what = "not folded, nothing more of it is published" if held.publishing else "not folded"
            yield f"Set aside since {_time(held.since_ms)}: {one.topic}-{one.partition}, {what}. {held.error}"
            yield f"  failed {held.failures} times; looked at again at {_time(held.retry_ms)}"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ago(ms: int) -> str:
    return humanize.precisedelta(timedelta(seconds=max(0, ms) // 1000))
