"""Decides on the logs of a topic as one, if they are cleaned together (compaction.scope=topic). Pure, from metadata.

A topic is due by time if any of its logs is, and by its dirty ratio if that of all its bytes is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from compactor.clean.due import CleaningDecision, Queue, Reason
from compactor.clean.log_to_clean import LogToClean
from compactor.clean.winners import is_settled
from compactor.model.state import CatalogState


def of_topics(state: CatalogState, decisions: Iterable[CleaningDecision]) -> tuple[CleaningDecision, ...]:
    """Returns for each log what is decided about its topic, given the `decisions` about each log by itself."""
    topics: dict[str, list[CleaningDecision]] = {}
    for decision in decisions:
        topics.setdefault(decision.tp.topic, []).append(decision)
    return tuple(decision for topic, own in topics.items() for decision in _of_topic(state, topic, own))


def _of_topic(state: CatalogState, topic: str, own: Sequence[CleaningDecision]) -> list[CleaningDecision]:
    excluded = [each for each in own if each.reason in _EXCLUDING]
    if excluded or not is_settled(state.logs_of(topic)):
        return [each if each in excluded else replace(each, reason=Reason.TOPIC_WAITS, due_ms=None) for each in own]
    together, first = _sum([each.measured for each in own]), _by_time(own)
    if first is None:
        reason, due_ms = _by_ratio(own, together), min((each.due_ms for each in own if each.due_ms), default=None)
    else:
        reason, due_ms = first.reason, first.due_ms
    return [replace(each, reason=reason, measured=together, due_ms=due_ms) for each in own]


_EXCLUDING = frozenset(
    (Reason.BUSY, Reason.QUARANTINED, Reason.UNCERTAIN, Reason.NOT_COMPACTED, Reason.FAULTY, Reason.TOPIC_WAITS)
)


def _by_time(own: Sequence[CleaningDecision]) -> CleaningDecision | None:
    """Returns the decision about the log that is due by time, for the longest; None if none is."""
    overdue = [each for each in own if each.queue is Queue.OVERDUE]
    return min(overdue, key=lambda each: (each.due_ms or 0, each.tp), default=None)


def _by_ratio(own: Sequence[CleaningDecision], together: LogToClean) -> Reason:
    limit = own[0].limit
    if together.ratio > limit:
        return Reason.DIRTY
    if together.max_ratio > limit or any(each.reason is Reason.UNMEASURED for each in own):
        return Reason.UNMEASURED if together.straddling_records else Reason.CLEAN_ENOUGH
    reasons = [each.reason for each in own]
    idle = (Reason.CLEAN_ENOUGH, Reason.HELD, Reason.TOMBSTONES)
    return next((reason for reason in idle if reason in reasons), _idle(reasons))


def _idle(reasons: Sequence[Reason]) -> Reason:
    return Reason.CLEAN_ENOUGH if Reason.DIRTY in reasons else Reason.NOTHING


def _sum(measured: Sequence[LogToClean]) -> LogToClean:
    """Adds up the bytes and records of some logs; the oldest record is that of all."""
    oldest = [each.oldest_ms for each in measured if each.oldest_ms is not None]
    straddling = [each.straddling_oldest_ms for each in measured if each.straddling_oldest_ms is not None]
    return LogToClean(
        clean_bytes=sum(each.clean_bytes for each in measured),
        cleanable_bytes=sum(each.cleanable_bytes for each in measured),
        straddling_bytes=sum(each.straddling_bytes for each in measured),
        uncleanable_bytes=sum(each.uncleanable_bytes for each in measured),
        cleanable_records=sum(each.cleanable_records for each in measured),
        straddling_records=sum(each.straddling_records for each in measured),
        oldest_ms=min(oldest, default=None),
        straddling_oldest_ms=min(straddling, default=None),
    )
