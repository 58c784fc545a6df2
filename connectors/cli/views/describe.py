"""The text of `keyfold describe`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

import humanize

from compactor.clean.due import Reason
from compactor.model.order import TIMESTAMP
from compactor.model.state import BY_OFFSET, OF_TOPIC
from compactor.model.times import earliest, moment
from connectors.operations.describe import Description, PartitionDescription, TopicDescription, WorkerStatus
from connectors.progress.terminal import table
from connectors.runtime import left_out
from connectors.runtime.status import ConnectorState
from connectors.source.source_errors import advice, fault_of, meaning_of
from connectors.terminal_text import one_line

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
        "truncates",
        "records_filled",
        "records_left_unfilled",
        "records_unreadable_to_fill",
        "offsets_lost",
    ),
    "published": ("transactions", "transactions_aborted", "records_published", "bytes_published"),
    "left out": (
        "records_late",
        "records_unchanged",
        "records_rejected",
        "records_without_key",
        "records_refused",
        "dead_letters",
    ),
    "folded": (
        *("full_folds", "merges", "fold_bytes_read", "fold_bytes_written", "fold_records_removed"),
        *("fold_jobs", "fold_ms", "retentions"),
    ),
}
"""The counters of each line in which they are shown."""


def text(description: Description, now_ms: int, location: str) -> str:
    """Returns the whole text, its sections parted by an empty line; `location` is the connector's folder."""
    sections = [[*_head(description, now_ms, location), *_order(description)]]
    if description.topics:
        headers = ("TOPIC", "OUTPUT", "READ", "NEWEST SNAPSHOT", "TAKEN", "RECORDS")
        sections.append([table(headers, [_topic_row(topic) for topic in description.topics])])
    if description.partitions:
        rows = [partition_row(log) for log in description.partitions]
        sections.append([table(_PARTITION_HEADERS, rows)])
    if begun := list(_generations_begun(description.partitions)):
        sections.append(begun)
    if held := [*_closed_topics(description.topics), *partitions_aside(description.partitions)]:
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


def _order(description: Description) -> Iterator[str]:
    """Yields lines about which record of a key wins, and until when none that comes late brings a key back."""
    order = description.order
    if description.scope == OF_TOPIC:
        yield "Scope: topic; a key has one winner over all partitions"
        order = TIMESTAMP if order == BY_OFFSET else order
    if order == BY_OFFSET:
        return
    for topic in description.topics:
        if topic.truncate_order is not None:
            value = one_line(topic.truncate_order)
            yield f"Truncated: {topic.topic}, at {value}; what comes with a lower value is late"
    horizon = earliest(*(log.first_horizon_ms for log in description.partitions))
    kept = sum(log.tombstones for log in description.partitions)
    until = "none has its delete horizon yet" if horizon is None else f"the first of them until {moment(horizon)}"
    fence = f"{kept:,} tombstones keep late records from bringing their keys back, {until}" if kept else "no tombstones"
    yield f"Order: by {order}; {fence}"


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
        yield "Error: " + status.error.replace("\n", "\n  ")
    if status.waiting_since_ms is not None and status.error is not None:
        outage = _ago(now_ms - status.waiting_since_ms)
        yield f"Waits: what the error names has not answered since {moment(status.waiting_since_ms)}, {outage}"
    if status.next_restart_ms is not None:
        yield f"Restart: after {status.failures} failures, by {moment(status.next_restart_ms)}"
    elif status.failures and status.state in _STARTED_AGAIN:
        yield f"Restarts: {status.failures} in a row; forgotten once it has worked"
    if counted := list(counter_lines(status.counters)):
        since = "it was started" if status.counted_since_ms is None else moment(status.counted_since_ms)
        yield f"Counted since {since}:"
        yield from counted
    yield from (f"Warning: {line}" for line in left_out.lines(status.counters))


def counter_lines(counters: Mapping[str, int]) -> Iterator[str]:
    """Yields a line for each kind of work, with what was counted of it and is not 0; names that are new come last."""
    grouped = {name for names in _COUNTED.values() for name in names}
    groups = {**_COUNTED, "other": tuple(name for name in counters if name not in grouped)}
    for group, names in groups.items():
        counts = [f"{name.replace('_', ' ')} {counters[name]:,}" for name in names if counters.get(name)]
        if counts:
            yield f"  {group + ':':<11}{', '.join(counts)}"


def _topic_row(topic: TopicDescription) -> tuple[object, ...]:
    taken = topic.newest_snapshot
    snapshot = (taken.id, moment(taken.created_ms), taken.records) if taken else (None, None, None)
    return (topic.topic, topic.output_topic, _read_word(topic), *snapshot)


def _read_word(topic: TopicDescription) -> str:
    """Returns whether a topic is read, and why not: what the brokers say now comes before what was found last."""
    if topic.changed:
        return f"no: {topic.changed} since"
    return f"no: {fault_of(topic.closed) or topic.closed}" if topic.closed else "yes"


def partition_row(log: PartitionDescription) -> tuple[object, ...]:
    """Returns the cells of a partition's row."""
    place = (log.topic, log.partition, log.source_end, log.ingested, log.published, log.lag, log.clean_end)
    kept = (log.runs, log.records, log.bytes, log.dirty_ratio, log.tombstones, log.rejected, log.lost_offsets)
    # If only unpublished records could be folded, it waits for them to be published.
    word = _UNPUBLISHED if log.fold.reason in _IDLE and log.lag else log.fold.reason
    return (*place, *kept, word)


def _generations_begun(partitions: tuple[PartitionDescription, ...]) -> Iterator[str]:
    """Yields the partitions that still have their earlier generation in the output, each with how far it is."""
    for log in partitions:
        if log.waits_for is not None:
            yield (
                f"Generation {log.generation} of {log.topic}-{log.partition} is read from offset "
                f"{log.generation_start}, up to {log.ingested} now. The output stays as it is until {log.waits_for} is "
                "reached."
            )


def _closed_topics(topics: tuple[TopicDescription, ...]) -> Iterator[str]:
    """Yields the topics that are closed as they cannot be read on, each with what can be done about it."""
    for topic in topics:
        if topic.changed:
            yield f"Topic {topic.topic} was {topic.changed} since the connector last read it: its lag is not known."
            yield "  If the connector is RUNNING, it finds out within half a minute; otherwise its next start does."
        elif topic.closed is not None and fault_of(topic.closed) is not None:
            yield f"Set aside: topic {topic.topic}, {meaning_of(topic.closed)}; neither read nor published any more."
            yield f"  {advice(topic.closed)}"


def partitions_aside(partitions: tuple[PartitionDescription, ...]) -> Iterator[str]:
    """Yields the partitions that are quarantined, each with its error."""
    for log in partitions:
        if held := log.quarantine:
            what = "not folded, nothing more of it is published" if held.publishing else "not folded"
            yield f"Set aside since {moment(held.since_ms)}: {log.topic}-{log.partition}, {what}. {held.error}"
            yield f"  failed {held.failures} times; looked at again at {moment(held.retry_ms)}"


def _ago(ms: int) -> str:
    return humanize.precisedelta(timedelta(seconds=max(0, ms) // 1000))
