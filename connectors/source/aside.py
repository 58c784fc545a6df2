"""Which source topics are set aside while the connector goes on with its others: pure decisions.

A topic that is set aside is closed in the catalog: it is not read and not published, and what is kept of it stays.
Where no other topic is left to read, the connector is FAILED instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from compactor.model.log import PartitionLog
from compactor.model.state import State, Topic
from connectors.errors import ConnectorError, SourceAsideError
from connectors.source import source_errors as outcome

RECREATED: Final = "recreated"
TRUNCATED: Final = "truncated"
LOST: Final = "records lost"
KINDS: Final[Mapping[str, str]] = {
    RECREATED: "another topic has its name now, by its id",
    TRUNCATED: "its log ended below our position",
    LOST: "records were gone before they were read",
}
"""Why a topic is set aside, as `Topic.closed` says it, and what that means."""
CUT_DELETED: Final = "deleted, truncated before"
"""One that was set aside as TRUNCATED and that nobody knew for a while: should it be back, it is set aside again."""
ADVICE: Final = (
    "Their records so far are kept and stay published. To fold what such a topic has now, give it a connector of its "
    "own, with a new name and a new output.topic; leave it out of this one's topics to be told of it no more."
)
LOST_ADVICE: Final = "Set on.data.loss=skip to go on with an explicit gap."


class Aside(NamedTuple):
    """A topic that cannot be read on, why (one of KINDS), and the error that says so."""

    topic: str
    kind: str
    error: ConnectorError


def is_aside(topic: Topic) -> bool:
    """Whether `topic` is set aside."""
    return topic.closed in KINDS


def names(state: State) -> frozenset[str]:
    """The topics that are set aside, or would be if they were back: the source reads none of them."""
    return frozenset(name for name, topic in state.topics.items() if is_aside(topic) or topic.closed == CUT_DELETED)


def of_id(connector: str, topic: Topic, found_id: str, *, skip_lost: bool) -> Aside | None:
    """Why `topic` has to be set aside, by the id that it has now; None where its id is that of the catalog.

    A topic that was set aside stays so, whatever its log looks like now: what it lacks cannot be told any more. Only
    lost records may be skipped (on.data.loss=skip).
    """
    if found_id != topic.topic_id:
        return Aside(topic.topic, RECREATED, outcome.recreated(connector, topic.topic, topic.topic_id, found_id))
    kind = TRUNCATED if topic.closed == CUT_DELETED else topic.closed
    if kind == TRUNCATED or (kind == LOST and not skip_lost):
        return Aside(topic.topic, kind, error(connector, [(topic.topic, kind)]))
    return None


def of_log(
    connector: str, log: PartitionLog, log_start: int | None, log_end: int | None, *, skip_lost: bool
) -> Aside | None:
    """Why the topic of `log` has to be set aside, by log start and last stable offset as far as they are known."""
    if log_end is not None and log_end < log.end:
        return Aside(log.topic, TRUNCATED, outcome.below(connector, log.tp, log.end, log_end))
    if log_start is not None and log_start > log.end and not skip_lost:
        return Aside(log.topic, LOST, outcome.lost(connector, log.tp, log.end, log_start))
    return None


def refuse_all(aside: Mapping[str, Aside], found: Collection[str]) -> None:
    """Raises what is wrong with the first topic of `aside` where there is no other among `found` to go on with."""
    if aside and not set(found) - aside.keys():
        raise aside[min(aside)].error


def error(connector: str, found: Iterable[tuple[str, str]]) -> SourceAsideError:
    """The error that names the topics that are set aside, `found` as (topic, kind), with what can be done."""
    every = sorted(found)
    told = "; ".join(f"{topic} ({kind}: {KINDS[kind]})" for topic, kind in every)
    return SourceAsideError(
        f"Connector {connector}: source topics are set aside: {told}.", advice(*dict(every).values())
    )


def advice(*kinds: str) -> str:
    """What can be done about topics that are set aside so."""
    return f"{LOST_ADVICE} {ADVICE}" if LOST in kinds else ADVICE


def check(connector: str, state: State, named: Callable[[str], bool]) -> None:
    """Raises SourceAsideError where a topic that the connector names is set aside: not everything was done."""
    found = [(name, topic.closed) for name, topic in state.topics.items() if is_aside(topic) and named(name)]
    if found:
        raise error(connector, [(name, kind) for name, kind in found if kind is not None])
