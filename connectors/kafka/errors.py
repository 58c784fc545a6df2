"""KafkaError → keyfold's typed errors, which say what happened and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from compactor.errors import KeyfoldError, PublishInterruptedError
from connectors.errors import CHECK_BROKERS, BrokerRefusedError, NotAllowedError, OutputError, UnreachableError
from connectors.kafka.broker_text import broker_text

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

NOT_ALLOWED: Final[Mapping[int, str]] = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Write and Describe on the transactional ids that begin with the "
    "connector's name and a hyphen",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Read, Describe and DescribeConfigs on the source topics, and Write, Read, "
    "Describe and DescribeConfigs on the output and dead letter topics",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Read and Describe on the group connect-<connector>, and for keyfold dlq "
    "on keyfold-dlq-<connector>",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "IdempotentWrite on the cluster",
}
"""What the brokers' ACLs refuse, by error code, and the rights to grant if it is not known which one was missing."""

SETTLING: Final = frozenset(
    (
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    )
)
"""Answers right after a broker has started, or a topic or the first group was made: asked again."""

UNANSWERED: Final = frozenset(
    (
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._NOENT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.LEADER_NOT_AVAILABLE,
    )
)
"""No broker answered, or none that could have. `_NOENT` is what the admin client says of a partition with a leader that
it does not know, which is so while no broker is there."""


_SETTINGS: Final[Mapping[int, str]] = {
    KafkaError.INVALID_REPLICATION_FACTOR: "Set output.topic.replication.factor or "
    "errors.deadletterqueue.topic.replication.factor to at most the number of brokers, or to -1, their default.",
    KafkaError.INVALID_CONFIG: "Correct output.topic.config.*.",
    KafkaError.POLICY_VIOLATION: "Choose replication factor and output.topic.config.* as the cluster's policy asks.",
    KafkaError.INVALID_PARTITIONS: "See how many partitions the cluster allows.",
    KafkaError.TOPIC_EXCEPTION: "Correct output.topic or errors.deadletterqueue.topic.name.",
}
"""Topics that the brokers will not make as they were asked for."""


UNFIT: Final[Mapping[int, str]] = {
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "Set the producer's transaction.timeout.ms to at most the brokers' "
    "transaction.max.timeout.ms, or raise that.",
    KafkaError.UNSUPPORTED_VERSION: "Use newer brokers: these do not know the request.",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "Raise the message format of the topic (message.format.version).",
    KafkaError.OFFSET_METADATA_TOO_LARGE: "Set the brokers' offset.metadata.max.bytes to 4096, their default.",
    KafkaError.INVALID_COMMIT_OFFSET_SIZE: "Raise the brokers' message.max.bytes, or that of __consumer_offsets.",
}
"""What brokers refuse for what they, or the connector's clients, are set to, and what mends that: no wait does."""


def cause(error: BaseException) -> KafkaError:
    """Returns the KafkaError inside an exception of confluent-kafka."""
    inner = error.args[0] if error.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(error))


def is_settling(error: BaseException) -> bool:
    """Returns whether `error` of a client is one that passes by itself a moment after a broker or topic came up."""
    return isinstance(error, KafkaException) and cause(error).code() in SETTLING


def not_allowed(error: KafkaError, doing: str, right: str | None = None) -> NotAllowedError:
    """Returns the error for a missing right; `right` names it and what it is on, if that is known."""
    return NotAllowedError(
        f"{doing}: {broker_text(error)}: its principal lacks a right.",
        f"Grant {right or NOT_ALLOWED[error.code()]} (kafka-acls.sh --add); it is tried again by itself.",
    )


def typed(error: KafkaError, doing: str, bootstrap: str, right: str | None = None) -> KeyfoldError:
    """Returns the typed error for `error`; its message begins with `doing`, which names connector, topic, partition.

    `right`: the one that it takes, and on what. A missing right is a NotAllowedError, a topic that the brokers do not
    make as asked for an OutputError, what no wait mends a BrokerRefusedError. An error that passes by itself is a
    PublishInterruptedError or an UnreachableError: both are retriable.
    """
    code = error.code()
    if code in NOT_ALLOWED:
        return not_allowed(error, doing, right)
    if code in UNFIT:
        return BrokerRefusedError(f"{doing}: {broker_text(error)}.", f"{UNFIT[code]} It is tried again by itself.")
    if code in _SETTINGS:
        return OutputError(f"{doing}: {broker_text(error)}.", _SETTINGS[code])
    if code in MISSING:  # of one broker at one moment: only step T3, which asks for longer, calls a topic deleted
        return UnreachableError(
            f"{doing}: {bootstrap} does not know the topic at the moment: {broker_text(error)}.",
            "It is asked for again; if it was deleted, the next start of the connector says so.",
        )
    if code in UNANSWERED or error.retriable():
        return UnreachableError(
            f"{doing}: {bootstrap} did not answer: {broker_text(error)}.",
            CHECK_BROKERS,
        )
    return PublishInterruptedError(f"{doing}: {broker_text(error)}.", "It is tried again.")


@contextmanager
def reading(config: Mapping[str, Any], what: str, topic: str) -> Iterator[None]:
    """Raises what librdkafka raises in the block as `typed` says: that `what`, of `topic`, cannot be read.

    `config` is that of the consumer.
    """
    try:
        yield
    except KafkaException as error:
        bootstrap = str(config.get("bootstrap.servers"))
        raise typed(cause(error), f"{what} cannot be read", bootstrap, f"Read on topic {topic}") from error
