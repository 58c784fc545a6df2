"""What became of a source topic or a range of it, and the error that says so: pure decisions.

Everything is decided from what the broker states (topic id, log start, last stable offset), never from the
error code of a fetch alone: a code may be old, or speak of a replica that lags.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, TypeVar

import msgspec

from compactor.errors import RejectedRecordError
from compactor.model.record import TopicPartition
from connectors.errors import (
    CHECK_BROKERS,
    ConnectorError,
    DataLossError,
    NotAllowedError,
    SourceChangedError,
    UnreachableError,
)

START_OVER: Final = (
    "Start over: keyfold delete CONNECTOR.json --outputs removes what was kept and published, and the next run begins "
    "anew. Or go on under a new connector name and a new output topic; the state of this one stays as it is."
)


class Standing(msgspec.Struct, frozen=True):
    """What the broker says of one partition now.

    The id of its topic, None where there is no such topic; its log start and last stable offset, None where they
    were not answered.
    """

    topic_id: str | None
    log_start: int | None = None
    log_end: int | None = None


class TopicVerdict(Enum):
    """What to do about a range that does not move."""

    WAIT = auto()
    DELETED = auto()
    RECREATED = auto()
    TRUNCATED = auto()
    LOST = auto()


def judge(topic_id: str, position: int, hi: int, standing: Standing) -> TopicVerdict:
    """What became of the records [position, hi) of a partition of the topic `topic_id`."""
    if standing.topic_id is None:
        return TopicVerdict.DELETED
    if standing.topic_id != topic_id:
        return TopicVerdict.RECREATED
    if standing.log_end is not None and standing.log_end < hi:
        return TopicVerdict.TRUNCATED
    if standing.log_start is not None and standing.log_start > position:
        return TopicVerdict.LOST
    return TopicVerdict.WAIT


_About = TypeVar("_About", bound=ConnectorError)


class RangeFault(Enum):
    """What an error that librdkafka delivers in place of a record asks for."""

    WAIT = auto()
    LOOK = auto()
    REFUSED = auto()
    DAMAGED = auto()


_LOOK: Final = frozenset(
    (
        "_AUTO_OFFSET_RESET",
        "OFFSET_OUT_OF_RANGE",
        "UNKNOWN_TOPIC_OR_PART",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
    )
)
_REFUSED: Final = frozenset(("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"))
_DAMAGED: Final = frozenset(("_BAD_MSG", "_BAD_COMPRESSION", "_NOT_IMPLEMENTED", "_UNSUPPORTED_FEATURE"))


def classify(code: str) -> RangeFault:
    """What the librdkafka error name `code` asks for.

    DAMAGED ends the read at once: librdkafka goes on behind a batch that it cannot read, so its position
    would pass records that nobody has seen.
    """
    if code in _LOOK:
        return RangeFault.LOOK
    if code in _REFUSED:
        return RangeFault.REFUSED
    return RangeFault.DAMAGED if code in _DAMAGED else RangeFault.WAIT


def recreated(connector: str, topic: str, ours: str, theirs: str) -> SourceChangedError:
    """The topic of that name is another one now."""
    error = SourceChangedError(
        f"Connector {connector}: source topic {topic} was recreated: its id is {theirs}, our offsets count in {ours}.",
        START_OVER,
    )
    return _of(error, topic)


def below(connector: str, partition: TopicPartition, ours: int, log_end: int) -> SourceChangedError:
    """The log ends before a position that it once had."""
    error = SourceChangedError(
        f"Connector {connector}: the log of {partition} ends at offset {log_end}, below our position {ours}: "
        "records were taken back.",
        START_OVER,
    )
    return _of(error, partition.topic)


def lost(connector: str, partition: TopicPartition, ours: int, log_start: int) -> DataLossError:
    """Records were removed before they were read."""
    error = DataLossError(
        f"Connector {connector}: records of {partition} are gone before they were read: our position is offset "
        f"{ours}, the log starts at {log_start}.",
        "Set on.data.loss=skip to go on with an explicit gap, or go on under a new connector name.",
    )
    return _of(error, partition.topic)


def deleted(connector: str, partition: TopicPartition, ours: int, hi: int) -> DataLossError:
    """The topic was deleted while a range of it was still to be read."""
    return DataLossError(
        f"Connector {connector}: the topic of {partition} was deleted before offsets {ours} to {hi} were read.",
        "Restart the connector to go on without the topic, or set on.data.loss=skip.",
    )


def missing(connector: str, partition: TopicPartition, ours: int, hi: int, standing: Standing) -> DataLossError:
    """Records up to `hi` are gone, by a log start past our position or with the whole topic."""
    if standing.topic_id is None:
        return deleted(connector, partition, ours, hi)
    return lost(connector, partition, ours, standing.log_start or 0)


def _of(error: _About, topic: str) -> _About:
    error.topic = topic
    return error


def refused(connector: str, partition: TopicPartition, ours: int, reason: str) -> NotAllowedError:
    """The broker does not let us read."""
    return NotAllowedError(
        f"Connector {connector}: may not read {partition} at offset {ours}: {reason}.",
        f"Grant Read and Describe on topic {partition.topic} (kafka-acls.sh --add); it is tried again by itself.",
    )


def untold(connector: str, topic: str, reason: str) -> NotAllowedError:
    """The brokers do not let us ask about a topic."""
    return NotAllowedError(
        f"Connector {connector}: may not ask where topic {topic} ends: {reason}.",
        f"Grant Read and Describe on topic {topic} (kafka-acls.sh --add); it is tried again by itself.",
    )


def damaged(connector: str, partition: TopicPartition, ours: int, reason: str) -> ConnectorError:
    """A batch cannot be decoded."""
    return ConnectorError(
        f"Connector {connector}: a batch of {partition} at or after offset {ours} cannot be read: {reason}.",
        "Look at that batch with kafka-dump-log.sh; records in it are not skipped on their own.",
    )


def undecodable(connector: str, partition: TopicPartition, offset: int, reason: str) -> RejectedRecordError:
    """A record has something that cannot be read, and nobody is there to let it go."""
    return RejectedRecordError(
        f"Connector {connector}: the record {partition} at offset {offset} cannot be read whole: {reason}.",
        "Correct its producer, and write it again if it counts.",
    )


def unreachable(connector: str, partition: TopicPartition, ours: int, seconds: float, reason: str) -> UnreachableError:
    """Nothing came for too long."""
    return UnreachableError(
        f"Connector {connector}: no progress on {partition} at offset {ours} for {seconds:.0f} s"
        f"{': ' + reason if reason else ''}.",
        CHECK_BROKERS,
    )
