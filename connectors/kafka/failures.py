"""librdkafka's errors as keyfold's: who has to do something, and what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from compactor.errors import KeyfoldError, PublishInterruptedError
from connectors.errors import OutputError, UnreachableError

FENCED: Final = frozenset((KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH))
"""Another producer with the same transactional id was initialised after ours."""

REFUSED: Final = frozenset(
    (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
    )
)
"""The broker refuses what a record is; sending it again changes nothing."""

MISSING: Final = frozenset(
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    )
)

_GRANTS: Final[Mapping[int, str]] = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Grant Write and Describe on the transactional ids that begin "
    "with the connector's name.",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant Write and Describe on the output and dead letter topics, and Read "
    "on the source topics (committing a position asks for it).",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Grant Read and Describe on the group connect-<connector>.",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Grant IdempotentWrite on the cluster, or Create and AlterConfigs for "
    "the output topic.",
}
_UNANSWERED: Final = frozenset(
    (
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.LEADER_NOT_AVAILABLE,
    )
)


_SETTINGS: Final[Mapping[int, str]] = {
    KafkaError.INVALID_REPLICATION_FACTOR: "Set output.topic.replication.factor or "
    "errors.deadletterqueue.topic.replication.factor to at most the number of brokers.",
    KafkaError.INVALID_CONFIG: "Correct output.topic.config.*.",
    KafkaError.POLICY_VIOLATION: "Choose replication factor and output.topic.config.* as the cluster's policy asks.",
    KafkaError.INVALID_PARTITIONS: "See how many partitions the cluster allows.",
    KafkaError.TOPIC_EXCEPTION: "Correct output.topic or errors.deadletterqueue.topic.name.",
}
"""Topics that the brokers will not make as they were asked for."""


def cause(error: BaseException) -> KafkaError:
    """The KafkaError inside an exception of confluent-kafka."""
    found = error.args[0] if error.args else None
    return found if isinstance(found, KafkaError) else KafkaError(KafkaError._FAIL, str(error))


def typed(error: KafkaError, doing: str, bootstrap: str) -> KeyfoldError:
    """What `error` means to an operator; `doing` begins the message and names connector, topic, partition.

    What nobody has to act on is a PublishInterruptedError or an UnreachableError: both are retriable.
    """
    code = error.code()
    if code in _GRANTS:
        return OutputError(f"{doing}: {error.str()}.", _GRANTS[code])
    if code in _SETTINGS:
        return OutputError(f"{doing}: {error.str()}.", _SETTINGS[code])
    if code in MISSING:
        return OutputError(
            f"{doing}: {error.str()}.", "Look whether the topic was deleted; a deleted output is not made again."
        )
    if code in _UNANSWERED or error.retriable():
        return UnreachableError(
            f"{doing}: {bootstrap} did not answer: {error.str()}.",
            "Check that the brokers of bootstrap.servers are up and can be reached.",
        )
    return PublishInterruptedError(f"{doing}: {error.str()}.", "It is tried again.")


def raise_typed(error: KafkaException, doing: str, config: Mapping[str, Any]) -> None:
    """Raises `typed` for an exception of a client that was made with `config`."""
    raise typed(cause(error), doing, str(config.get("bootstrap.servers", "the brokers"))) from error
