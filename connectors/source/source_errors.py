"""Decides which source topics cannot be read on (lost, recreated, truncated) and closes those; the others go on.

Everything is decided from what the broker states (topic id, log start, last stable offset), never from the error code
of a fetch alone: a code may be old, or come from a replica that lags.

A closed topic is neither read nor published, and what is kept of it stays; the catalog has the reason
(`Topic.closed`). If no other topic is left to read, the connector is FAILED instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from compactor.errors import TAKE_UP, KeyfoldError, PublishInterruptedError
from compactor.model.actions import AnyAction
from compactor.model.log import PartitionLog, first_end_of
from compactor.model.record import TopicPartition
from compactor.model.state import REJECTED, CatalogState, Topic
from compactor.spark.errors import unwrap
from connectors.clock import Clock
from connectors.errors import (
    CHECK_BROKERS,
    ConnectorError,
    DataLossError,
    NotAllowedError,
    SourceChangedError,
    SourceClosedError,
    TopicSetAsideError,
    UnreachableError,
)

if TYPE_CHECKING:
    from compactor.catalog.catalog import Catalog

START_OVER: Final = (
    "keyfold resync CONNECTOR.json reads it anew from its start and makes the output equal to it. Or go on under a new "
    "connector name and a new output topic; the state of this one stays as it is."
)


class PartitionState(msgspec.Struct, frozen=True):
    """A partition as the broker states it now.

    `topic_id`: None if there is no such topic. `log_start` and `log_end` (last stable offset): None if they were not
    answered.
    """

    topic_id: str | None
    log_start: int | None = None
    log_end: int | None = None


class RangeOutcome(Enum):
    """States of a range that makes no progress."""

    WAIT = auto()
    DELETED = auto()
    RECREATED = auto()
    TRUNCATED = auto()
    LOST = auto()


def outcome_of(topic_id: str, position: int, hi: int, state: PartitionState) -> RangeOutcome:
    """Decides what became of the offsets [position, hi) of a partition of the topic with the id `topic_id`."""
    if state.topic_id is None:
        return RangeOutcome.DELETED
    if state.topic_id != topic_id:
        return RangeOutcome.RECREATED
    if state.log_end is not None and state.log_end < hi:
        return RangeOutcome.TRUNCATED
    if state.log_start is not None and state.log_start > position:
        return RangeOutcome.LOST
    return RangeOutcome.WAIT


class FetchError(Enum):
    """Kinds of errors that librdkafka delivers in place of a record, by what has to follow."""

    WAIT = auto()
    LOOK = auto()
    REFUSED = auto()
    # Ends the read at once: librdkafka goes on after a batch that it cannot read, so its position would pass records
    # that were not delivered.
    DAMAGED = auto()


_FETCH_ERRORS: Final = {
    **dict.fromkeys(("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PART"), FetchError.LOOK),
    **dict.fromkeys(("UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID"), FetchError.LOOK),
    **dict.fromkeys(("_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"), FetchError.LOOK),
    **dict.fromkeys(("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"), FetchError.REFUSED),
    **dict.fromkeys(("_BAD_MSG", "_BAD_COMPRESSION", "_NOT_IMPLEMENTED", "_UNSUPPORTED_FEATURE"), FetchError.DAMAGED),
}


def classify(code: str) -> FetchError:
    """Returns the kind of librdkafka's error with the name `code`."""
    return _FETCH_ERRORS.get(code, FetchError.WAIT)


def recreated(connector: str, topic: str, ours: str, theirs: str) -> SourceChangedError:
    """Returns the error for a topic, the name of which another topic has now."""
    return SourceChangedError(
        f"Connector {connector}: source topic {topic} was recreated: its id is {theirs}, our offsets count in {ours}.",
        START_OVER,
        topic=topic,
    )


def truncated(connector: str, partition: TopicPartition, ours: int, log_end: int) -> SourceChangedError:
    """Returns the error for a log that ends below a position that was read up to."""
    return SourceChangedError(
        f"Connector {connector}: the log of {partition} ends at offset {log_end}, below our position {ours}: "
        "records were taken back.",
        START_OVER,
        topic=partition.topic,
    )


def lost(connector: str, partition: TopicPartition, ours: int, log_start: int) -> DataLossError:
    """Returns the error for records that were removed before they were read."""
    return DataLossError(
        f"Connector {connector}: records of {partition} are gone before they were read: our position is offset "
        f"{ours}, the log starts at {log_start}.",
        "Set on.data.loss=skip to go on with an explicit gap, or begin anew from what is there with keyfold resync "
        "CONNECTOR.json --accept-loss.",
        topic=partition.topic,
    )


def missing(connector: str, partition: TopicPartition, ours: int, hi: int, state: PartitionState) -> DataLossError:
    """Returns the error for records up to `hi` that are gone, by a log start past our position or with the topic."""
    if state.topic_id is not None:
        return lost(connector, partition, ours, state.log_start or 0)
    return DataLossError(
        f"Connector {connector}: the topic of {partition} was deleted before offsets {ours} to {hi} were read.",
        "Restart the connector to go on without the topic, or set on.data.loss=skip.",
    )


def refused(connector: str, partition: TopicPartition, ours: int, reason: str) -> NotAllowedError:
    """Returns the error for a partition that the broker does not let us read."""
    return NotAllowedError(
        f"Connector {connector}: may not read {partition} at offset {ours}: {reason}.",
        f"Grant Read and Describe on topic {partition.topic} (kafka-acls.sh --add); it is tried again by itself.",
    )


def reading_stopped(connector: str) -> PublishInterruptedError:
    """Returns the error of a read that a stop has ended."""
    return PublishInterruptedError(
        f"Connector {connector}: it was stopped while it read.", "It goes on from its catalog when it is started again."
    )


def describe_refused(connector: str, topic: str, reason: str) -> NotAllowedError:
    """Returns the error for a topic that the brokers do not let us ask about."""
    return NotAllowedError(
        f"Connector {connector}: may not ask where topic {topic} ends: {reason}.",
        f"Grant Read and Describe on topic {topic} (kafka-acls.sh --add); it is tried again by itself.",
    )


def damaged(connector: str, partition: TopicPartition, ours: int, reason: str) -> ConnectorError:
    """Returns the error for a batch that cannot be decoded."""
    return ConnectorError(
        f"Connector {connector}: a batch of {partition} at or after offset {ours} cannot be read: {reason}.",
        "Look at that batch with kafka-dump-log.sh; records in it are not skipped on their own.",
    )


def unreachable(connector: str, partition: TopicPartition, ours: int, seconds: float, reason: str) -> UnreachableError:
    """Returns the error for a partition that made no progress for `seconds`."""
    error = UnreachableError(
        f"Connector {connector}: no progress on {partition} at offset {ours} for {seconds:.0f} s"
        f"{': ' + reason if reason else ''}.",
        CHECK_BROKERS,
    )
    error.silent_ms = round(seconds * 1000)
    return error


RECREATED: Final = "recreated"
TRUNCATED: Final = "truncated"
LOST: Final = "records lost"
FAULTS: Final[Mapping[str, str]] = {
    RECREATED: "another topic has its name now, by its id",
    TRUNCATED: "its log ended below our position",
    LOST: "records were gone before they were read",
    REJECTED: "one of its records is bad, and errors.tolerance lets none go",
}
"""The faults for which a topic that exists is closed, as `Topic.closed` has them, and what each means."""
DELETED: Final = "deleted"
UNNAMED: Final = "no longer named"
CUT_DELETED: Final = "deleted, truncated before"
"""Of a topic that was closed as TRUNCATED and then deleted: if it is back, it is closed as TRUNCATED again."""
ADVICE: Final = (
    "Their records so far are kept and stay published. To fold what such a topic has now, give it a connector of its "
    "own, with a new name and a new output.topic; leave it out of this one's topics to be told of it no more."
)
LOST_ADVICE: Final = "Set on.data.loss=skip to go on with an explicit gap."
REJECTED_ADVICE: Final = (
    "Nothing of such a topic is lost as long as the source keeps it: its position stays. Correct what the error names, "
    f"or let bad records go with errors.tolerance=all; then {TAKE_UP}"
)
NEXT: Final = "It is set aside, and the connector goes on with its other topics."


def fault_of(closed: str | None) -> str | None:
    """Returns for which of FAULTS a topic is closed; None: for another reason, or not at all."""
    if closed is not None and closed.startswith(REJECTED):
        return REJECTED
    return closed if closed in FAULTS else None


def meaning_of(closed: str) -> str:
    """Returns what it means that a topic is closed by a fault; of a bad record, which one it is."""
    fault = fault_of(closed)
    return closed if fault is None else FAULTS[fault] + closed.removeprefix(fault).removesuffix(".")


class ClosedTopic(NamedTuple):
    """A topic that cannot be read on, why (as `Topic.closed` says it), and the error that says so."""

    topic: str
    fault: str
    error: ConnectorError


def is_faulty(topic: Topic) -> bool:
    """Returns whether `topic` is closed because it cannot be read on, not because it was deleted or is not named."""
    return fault_of(topic.closed) is not None


def left_out(state: CatalogState) -> frozenset[str]:
    """Returns the topics that are closed by a fault, or would be if they were back: the source reads none of them."""
    return frozenset(name for name, topic in state.topics.items() if is_faulty(topic) or topic.closed == CUT_DELETED)


def closed_by_id(connector: str, topic: Topic, found_id: str, *, skip_lost: bool) -> ClosedTopic | None:
    """Decides by the id that `topic` has now whether it has to be closed; None if its id is that of the catalog.

    A topic that was closed as truncated stays so, whatever its log looks like now: what it lacks can no longer be
    known. Only lost records may be skipped (on.data.loss=skip). One with a bad record stays so until the next start.
    """
    if found_id != topic.topic_id:
        return ClosedTopic(topic.topic, RECREATED, recreated(connector, topic.topic, topic.topic_id, found_id))
    fault = TRUNCATED if topic.closed == CUT_DELETED else topic.closed
    if fault is not None and (fault == TRUNCATED or topic.is_rejected or (fault == LOST and not skip_lost)):
        return ClosedTopic(topic.topic, fault, closed_error(connector, [(topic.topic, fault)]))
    return None


def closed_by_log(
    connector: str, log: PartitionLog, log_start: int | None, log_end: int | None, *, skip_lost: bool
) -> ClosedTopic | None:
    """Decides by log start and last stable offset, as far as they are known, whether `log`'s topic has to be closed."""
    needed = max(log.end, first_end_of(log) or 0)
    if log_end is not None and log_end < needed:
        return ClosedTopic(log.topic, TRUNCATED, truncated(connector, log.tp, needed, log_end))
    if log_start is not None and log_start > log.end and not skip_lost:
        return ClosedTopic(log.topic, LOST, lost(connector, log.tp, log.end, log_start))
    return None


def require_another(closed: Mapping[str, ClosedTopic], names: Collection[str]) -> None:
    """Raises the error of the first topic of `closed` if `names` has no other topic to go on with."""
    if closed and not set(names) - closed.keys():
        raise closed[min(closed)].error


def closed_error(connector: str, closed: Iterable[tuple[str, str]]) -> SourceClosedError:
    """Returns the error that names the topics `closed`, as (topic, fault), with what can be done."""
    every = sorted(closed)
    listed = "; ".join(f"{topic} ({fault_of(closed)}: {meaning_of(closed)})" for topic, closed in every)
    return SourceClosedError(
        f"Connector {connector}: source topics are set aside: {listed}.", advice(*dict(every).values())
    )


def advice(*faults: str) -> str:
    """Returns what can be done about topics that are closed for `faults`."""
    known = {fault_of(fault) for fault in faults}
    said = (LOST_ADVICE if LOST in known else "", ADVICE if known - {REJECTED} else "")
    return " ".join(filter(None, (*said, REJECTED_ADVICE if REJECTED in known else "")))


def check_none_closed(connector: str, state: CatalogState, named: Callable[[str], bool]) -> None:
    """Raises SourceClosedError if a topic that the connector names is closed by a fault: not everything was done."""
    closed = [(name, topic.closed) for name, topic in state.topics.items() if is_faulty(topic) and named(name)]
    if closed:
        raise closed_error(connector, [(name, fault) for name, fault in closed if fault is not None])


@contextmanager
def closing_topic(
    catalog: Catalog, look_into: Callable[[CatalogState], Sequence[AnyAction]], clock: Clock
) -> Iterator[None]:
    """Closes the source topic that makes the block fail, if the connector has others.

    `look_into` looks at all topics and returns the actions that close those which cannot be read on. If the topic of
    the error is closed then, raises TopicSetAsideError: the connector begins again without it. If the look finds
    nothing wrong with it any more (a log that was cut has grown again), the block's error stays what it is, and an
    operator decides; that other topics are closed does not count.
    """
    try:
        yield
    except Exception as failed:
        error = unwrap(failed)
        if not isinstance(error, SourceChangedError | DataLossError):
            raise
        with suppress(KeyfoldError):  # then the block's error is what counts
            actions = look_into(catalog.refresh())
            catalog.commit(lambda _: actions, clock.now_ms())
        if error.topic not in left_out(catalog.state):
            raise
        raise TopicSetAsideError(error.message, NEXT, topic=error.topic) from failed
