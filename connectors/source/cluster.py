"""What the brokers say of source topics: names, ids, partition counts, log starts and last stable offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, Protocol

import msgspec
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, OffsetSpec

from compactor.model.record import TopicPartition
from connectors.config.topics import TopicPattern
from connectors.kafka.ids import topic_id
from connectors.source import source_errors as outcome
from connectors.source.plan import SourceTopic

REQUEST_S: Final = 10.0
_ABSENT: Final = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID))


class NoAnswerError(Exception):
    """The brokers did not answer a request; str() is why. Never leaves the package: it is retried, then named."""


class ClusterAnswers(msgspec.Struct, frozen=True):
    """Offsets by partition, and why a partition has none."""

    offsets: dict[TopicPartition, int]
    failures: dict[TopicPartition, str]


class Cluster(Protocol):
    """The one seam to the brokers for planning.

    What is asked without the right to know raises NotAllowedError.
    """

    def named(self, names: Iterable[str]) -> dict[str, SourceTopic]:
        """Those of the topics `names` that exist. Raises NoAnswerError."""

    def matching(self, pattern: TopicPattern) -> dict[str, SourceTopic]:
        """The topics that `pattern` matches, without Kafka's internal ones. Raises NoAnswerError."""

    def log_starts(self, partitions: Iterable[TopicPartition]) -> ClusterAnswers:
        """The first offset of each partition."""

    def log_ends(self, partitions: Iterable[TopicPartition]) -> ClusterAnswers:
        """The last stable offset of each partition: where a read_committed reader has to stop."""


class KafkaCluster:
    """The brokers behind an admin client; a request waits at most `timeout` seconds, and never over 10."""

    def __init__(self, connector: str, admin: AdminClient, timeout: float) -> None:
        self._connector = connector
        self._admin = admin
        self._timeout = min(REQUEST_S, timeout)

    def named(self, names: Iterable[str]) -> dict[str, SourceTopic]:
        """See Cluster."""
        return {name: _topic(found) for name, found in self._describe(names).items()}

    def matching(self, pattern: TopicPattern) -> dict[str, SourceTopic]:
        """See Cluster."""
        try:
            every = self._admin.list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            raise NoAnswerError(reason(error)) from None
        found = self._describe(name for name in every if pattern.matches(name))
        return {name: _topic(topic) for name, topic in found.items() if not topic.is_internal}

    def log_starts(self, partitions: Iterable[TopicPartition]) -> ClusterAnswers:
        """See Cluster."""
        return self._offsets(partitions, OffsetSpec.earliest())

    def log_ends(self, partitions: Iterable[TopicPartition]) -> ClusterAnswers:
        """See Cluster."""
        return self._offsets(partitions, OffsetSpec.latest())

    def _describe(self, names: Iterable[str]) -> Mapping[str, Any]:
        wanted = sorted(set(names))
        if not wanted:
            return {}
        futures = self._admin.describe_topics(TopicCollection(wanted), request_timeout=self._timeout)
        found = {name: self._existing(name, future) for name, future in futures.items()}
        return {name: topic for name, topic in found.items() if topic is not None}

    def _offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> ClusterAnswers:
        wanted = {Partition(key.topic, key.partition): spec for key in partitions}
        answers = ClusterAnswers({}, {})
        if not wanted:
            return answers
        futures = self._admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._timeout
        )
        for each, future in futures.items():
            key = TopicPartition(each.topic, each.partition)
            try:
                offset = future.result().offset
            except KafkaException as error:
                self._check_allowed(error, key.topic)
                answers.failures[key] = reason(error)
                continue
            if offset < 0:  # what librdkafka says, without an error, when the leader went away in the meantime
                answers.failures[key] = "its leader did not answer"
            else:
                answers.offsets[key] = offset
        return answers

    def _existing(self, name: str, future: Future[Any]) -> Any:
        """The description that `future` brings, None for a topic that does not exist."""
        try:
            return future.result()
        except KafkaException as error:
            if error.args[0].code() in _ABSENT:
                return None
            self._check_allowed(error, name)
            raise NoAnswerError(reason(error)) from None

    def _check_allowed(self, error: KafkaException, topic: str) -> None:
        """Raises NotAllowedError where ACLs do not let us ask about `topic`."""
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise outcome.untold(self._connector, topic, reason(error)) from None


def reason(error: KafkaException) -> str:
    """What librdkafka said, for a message."""
    return error.args[0].str() if error.args and isinstance(error.args[0], KafkaError) else str(error)


def _topic(described: Any) -> SourceTopic:
    return SourceTopic(topic_id(described.topic_id), len(described.partitions))
