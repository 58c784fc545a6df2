"""Plans what is published of a topic with one winner a key over its partitions (compaction.scope=topic). Pure.

A plan has a target for each log of the topic, or none: a record is sent or passed over by what the plan takes of all
logs, and the position of partition n says how far output partition n has come, whatever log its records are of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from compactor.model.log import PartitionLog, first_end_of
from compactor.model.position import ResumePoint
from compactor.model.publish_plan import PublishTarget
from compactor.model.record import TopicPartition, by_topic
from compactor.model.state import CatalogState
from compactor.publish.plan import is_published, target_of


def topic_targets(
    state: CatalogState,
    resume: Callable[[TopicPartition], ResumePoint],
    end_of: Callable[[PartitionLog, ResumePoint], int],
    is_stale: Callable[[TopicPartition], bool],
    *,
    bootstrap_fold: bool,
) -> list[PublishTarget]:
    """Returns the targets of all topics of which something is due, log by log.

    `resume` gives the point from which a log goes on, `end_of` the end of its next fold, and `is_stale` says whether
    its position is to be committed again.
    """
    return [
        target
        for name, topic in state.topics.items()
        if topic.closed is None
        for target in _targets(state, state.logs_of(name), resume, end_of, is_stale, bootstrap_fold=bootstrap_fold)
    ]


def _targets(
    state: CatalogState,
    logs: Sequence[PartitionLog],
    resume: Callable[[TopicPartition], ResumePoint],
    end_of: Callable[[PartitionLog, ResumePoint], int],
    is_stale: Callable[[TopicPartition], bool],
    *,
    bootstrap_fold: bool,
) -> Iterator[PublishTarget]:
    """Yields the targets of one topic; none if nothing is due, or if one of its logs holds up the others."""
    if not all(is_published(state, log) for log in logs):
        return
    points = {log.tp: resume(log.tp) for log in logs}
    if any(point.hold for point in points.values()) or (bootstrap_fold and _is_read_first(logs)):
        return
    ends = {log.tp: end_of(log, points[log.tp]) for log in logs}
    if any(_is_below_first_end(log, ends[log.tp]) for log in logs):
        return
    if any(ends[tp] > point.start or is_stale(tp) for tp, point in points.items()):
        yield from (target_of(state, log, points[log.tp], ends[log.tp]) for log in logs)


def _is_read_first(logs: Collection[PartitionLog]) -> bool:
    """Returns whether the backlog of a new topic is read to its end first: a new output then has each key once.

    A partition that a topic gets later holds up itself alone.
    """
    is_new = not any(log.begun for log in logs)
    return is_new and any(log.backlog_end is not None and log.end < log.backlog_end for log in logs)


def _is_below_first_end(log: PartitionLog, end: int) -> bool:
    """Returns whether a fold to `end` would show a reader less than the generation began with."""
    first_end = first_end_of(log)
    return first_end is not None and end < first_end


def some_topics(
    targets: Iterable[PublishTarget], last_turn: Mapping[TopicPartition, int], most: int
) -> list[PublishTarget]:
    """Returns the targets of some topics, those that have waited longest first: `most` targets, or one topic's."""
    topics = by_topic(targets)
    waited = sorted(topics, key=lambda name: max(last_turn.get(target.tp, 0) for target in topics[name]))
    chosen: list[PublishTarget] = []
    for name in waited:
        if chosen and len(chosen) + len(topics[name]) > most:
            break
        chosen += topics[name]
    return chosen
