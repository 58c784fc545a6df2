"""Asks the brokers for planner and reading tasks: topics, log starts, last stable offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import msgspec
from confluent_kafka import KafkaError
from confluent_kafka.admin import OffsetSpec

from compactor.errors import KeyfoldError
from compactor.model.record import TopicPartition
from connectors.config.topics import TopicPattern
from connectors.errors import PatternError
from connectors.kafka.admin import TopicInfo
from connectors.kafka.errors import cause
from connectors.source import source_errors
from connectors.source.plan import SourceTopic

_SHARE: Final = 0.05
"""How much of the time asking about topics may take: an answer about ten thousand partitions takes some seconds."""


_OLDEST_S: Final = 120.0


def ask_again_s(least_s: float, took_s: float) -> float:
    """Returns how old (s) an answer about topics may grow that took `took_s`: `least_s`, or more where that is long."""
    return max(least_s, min(_OLDEST_S, took_s / _SHARE))


class NoAnswerError(Exception):
    """The brokers did not answer a request; str() is why. Never leaves the package: it is retried, then made typed."""


class PartitionOffsets(msgspec.Struct, frozen=True):
    """Offsets by partition, and why a partition has none."""

    offsets: dict[TopicPartition, int]
    failures: dict[TopicPartition, str]


class SourceTopics(Protocol):
    """What planning needs of the brokers.

    Each raises NotAllowedError where the principal may not ask about a topic.
    """

    def named(self, names: Iterable[str]) -> dict[str, SourceTopic]:
        """Returns those of the topics `names` that exist. Raises NoAnswerError."""

    def matching(self, pattern: TopicPattern) -> dict[str, SourceTopic]:
        """Returns the topics that `pattern` matches, without Kafka's internal ones.

        Raises NoAnswerError, PatternError.
        """

    def log_starts(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Returns the first offset of each partition."""

    def log_ends(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Returns the last stable offset of each partition: where a read_committed reader has to stop."""


class SourceAdmin(Protocol):
    """What is asked of an admin client: `Admin`, or `BundledAdmin`."""

    def list_topics(self) -> Iterable[str]:
        """See Admin."""

    def describe_each(self, topics: Iterable[str], /) -> Mapping[str, TopicInfo | KafkaError]:
        """See Admin."""

    def offsets_each(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """See Admin."""


class AdminTopics:
    """Answers with an admin client, in one request each: nothing is asked again here."""

    def __init__(self, connector: str, admin: SourceAdmin) -> None:
        self._connector = connector
        self._admin = admin

    def named(self, names: Iterable[str]) -> dict[str, SourceTopic]:
        """See SourceTopics."""
        return {name: SourceTopic(found.id, found.partitions) for name, found in self._describe(names).items()}

    def matching(self, pattern: TopicPattern) -> dict[str, SourceTopic]:
        """See SourceTopics."""
        try:
            every = self._admin.list_topics()
        except KeyfoldError as error:
            raise NoAnswerError(cause(error.__cause__ or error).str()) from None
        try:
            names = [name for name in every if pattern.matches(name)]
        except PatternError as error:
            raise PatternError(f"Connector {self._connector}: {error.message}", error.action) from None
        found = self._describe(names)
        return {name: SourceTopic(one.id, one.partitions) for name, one in found.items() if not one.internal}

    def log_starts(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """See SourceTopics."""
        return self._offsets(partitions, OffsetSpec.earliest())

    def log_ends(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """See SourceTopics."""
        return self._offsets(partitions, OffsetSpec.latest())

    def _describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        found: dict[str, TopicInfo] = {}
        for name, answer in self._admin.describe_each(names).items():
            if isinstance(answer, KafkaError):
                self._check_allowed(answer, name)
                raise NoAnswerError(answer.str())
            found[name] = answer
        return found

    def _offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> PartitionOffsets:
        found = PartitionOffsets({}, {})
        for tp, answer in self._admin.offsets_each(partitions, spec).items():
            if isinstance(answer, KafkaError):
                self._check_allowed(answer, tp.topic)
                found.failures[tp] = answer.str()
            elif answer < 0:
                found.failures[tp] = "its leader did not answer"
            else:
                found.offsets[tp] = answer
        return found

    def _check_allowed(self, error: KafkaError, topic: str) -> None:
        """Raises NotAllowedError where ACLs do not let us ask about `topic`."""
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise source_errors.describe_refused(self._connector, topic, error.str())
