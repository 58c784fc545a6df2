"""What keyfold asks the brokers outside of reading and sending, each request with a deadline and a typed error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, ConsumerGroupState, IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from msgspec import Struct

from compactor.model.record import TopicPartition
from connectors.errors import CHECK_BROKERS, ConnectorError, UnreachableError
from connectors.kafka import groups
from connectors.kafka.consumers import Setting
from connectors.kafka.errors import MISSING, SETTLING, cause, typed
from connectors.kafka.groups import Held
from connectors.kafka.ids import topic_id

REQUEST_S: Final = 20.0
POSITIONS_A_CALL: Final = 1_000
"""A request with many positions that each have metadata must stay well below the broker's limit."""
_PAUSE_S: Final = 0.05
_PATIENCE_S: Final = 60.0

K = TypeVar("K")
T = TypeVar("T")


class TopicInfo(Struct, frozen=True):
    """A topic as the brokers describe it; `leaderless` counts partitions that nobody serves right now."""

    name: str
    id: str
    partitions: int
    leaderless: int = 0


def group_id(connector: str) -> str:
    """The group that holds a connector's positions; lag tools and Kafka Connect's users know the name."""
    return f"connect-{connector}"


class Admin:
    """An admin client that answers with values or raises UnreachableError, NotAllowedError, OutputError.

    `deadline_s` is how long one request may take. Cheap to make; not to be shared with a forked process.
    """

    def __init__(self, config: Mapping[str, Setting], deadline_s: float = REQUEST_S) -> None:
        self._config = {"log_level": 2, **config}
        self._client = AdminClient(self._config)
        self._bootstrap = str(config.get("bootstrap.servers", "the brokers"))
        self._deadline_s = deadline_s

    def list_topics(self) -> list[str]:
        """The names of all topics that we may see."""
        return sorted(self._cluster("The topics cannot be listed").topics)

    def brokers(self) -> int:
        """How many brokers there are."""
        return len(self._cluster("The brokers cannot be counted").brokers)

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """Those of `topics` that exist, by name."""
        names = sorted(set(topics))
        if not names:
            return {}
        futures = self._client.describe_topics(TopicCollection(names), request_timeout=self._deadline_s)
        found = {name: self._existing(name, future) for name, future in futures.items()}
        return {name: _info(name, topic) for name, topic in found.items() if topic is not None}

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The last stable offset of each partition: where a read_committed reader has to stop."""
        return self._offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last replicated record of each partition, open transactions included."""
        return self._offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._offsets(partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def create_topic(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> bool:
        """Makes a topic; False where somebody else has just made it. `replication` -1 is the broker's default."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replication, config=dict(config))
        future = self._client.create_topics([topic], request_timeout=self._deadline_s)[name]
        try:
            future.result(self._deadline_s * 2)
        except KafkaException as error:
            if cause(error).code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            right = f"Create on topic {name} (or on the cluster)"
            raise self._typed(error, f"Topic {name} cannot be created", right) from error
        return True

    def grow(self, topic: str, partitions: int) -> None:
        """Gives `topic` `partitions` partitions in all."""
        request = [NewPartitions(topic, partitions)]
        self._answers(
            lambda: self._client.create_partitions(request, request_timeout=self._deadline_s),
            f"Topic {topic} cannot be given {partitions} partitions",
            lambda _: f"Alter on topic {topic}",
        )

    def delete_topics(self, names: Sequence[str]) -> None:
        """Removes topics with all their records, and waits until the brokers do not know them any more."""
        for name, future in (self._client.delete_topics(list(names)) if names else {}).items():
            try:
                future.result(self._deadline_s * 2)
            except KafkaException as error:
                if cause(error).code() not in MISSING:
                    raise self._typed(error, f"Topic {name} cannot be deleted", f"Delete on topic {name}") from error
        until = time.monotonic() + self._deadline_s
        while left := self.describe(names):
            if time.monotonic() >= until:
                raise UnreachableError(f"Topic {min(left)} is still there after it was deleted.", CHECK_BROKERS)
            time.sleep(_PAUSE_S)

    def has_group(self, group: str) -> bool:
        """Whether the brokers know the consumer group `group`."""
        found = self._of_group(
            lambda: self._client.describe_consumer_groups([group], request_timeout=self._deadline_s)[group],
            f"Group {group} cannot be described",
            f"Describe on group {group}",
        )
        return found is not None and found.state != ConsumerGroupState.DEAD

    def delete_group(self, group: str) -> None:
        """Removes a consumer group with its positions; one that is not there is fine.

        Raises ConnectorError where it has members.
        """
        self._of_group(
            lambda: self._client.delete_consumer_groups([group], request_timeout=self._deadline_s)[group],
            f"Group {group} cannot be deleted",
            f"Delete on group {group}",
        )

    def _of_group(self, ask: Callable[[], Future[T]], doing: str, right: str) -> T | None:
        """What is answered of a group, None where there is none; asked again while its coordinator is settling."""
        until = time.monotonic() + self._deadline_s
        while True:
            try:
                return ask().result(self._deadline_s * 2)
            except KafkaException as error:
                code = cause(error).code()
                if code == KafkaError.GROUP_ID_NOT_FOUND:
                    return None
                if code == KafkaError.NON_EMPTY_GROUP:
                    raise ConnectorError(
                        f"{doing}: it has members, which keyfold's consumers never are.",
                        "Stop the consumer or the Kafka Connect sink of that name, then try again.",
                    ) from error
                if code not in SETTLING or time.monotonic() >= until:
                    raise self._typed(error, doing, right) from error
            time.sleep(_PAUSE_S)

    def topic_config(self, name: str) -> dict[str, str]:
        """The topic's settings in effect, defaults included."""
        return self.topic_configs([name])[name]

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """The same of several topics, by name, with one request."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
        if not resources:
            return {}
        answers = self._answers(
            lambda: self._client.describe_configs(resources, request_timeout=self._deadline_s),
            f"The settings of topic {', '.join(one.name for one in resources)} cannot be read",
            lambda resource: f"DescribeConfigs on topic {resource.name}",
        )
        return {
            one.name: {key: entry.value for key, entry in answers[one].items() if entry.value is not None}
            for one in resources
        }

    def committed(
        self,
        group: str,
        partitions: Sequence[TopicPartition],
        patience_s: float = _PATIENCE_S,
        member: Consumer | None = None,
    ) -> dict[TopicPartition, Held | None]:
        """What `group` holds for each partition, None where nothing; asked by `member` of it, or one for the moment.

        Positions in a transaction that is not decided yet are waited for, up to `patience_s`. Raises as `groups`.
        """
        asking = member or groups.member(self._config, group)
        found: dict[TopicPartition, Held | None] = {}
        try:
            for chunk in chunks(partitions):
                found |= groups.committed(asking, self._config, group, chunk, patience_s)
        finally:
            if member is None:
                asking.close()
        return found

    def members(self, group: str) -> list[str]:
        """Who is in `group` now, each as its client id and host; for messages: none where nobody tells."""
        try:
            future = self._client.describe_consumer_groups([group], request_timeout=self._deadline_s)[group]
            found = future.result(self._deadline_s * 2).members
        except (KafkaException, TimeoutError):
            return []
        return sorted(f"{one.client_id} at {one.host.lstrip('/')}" for one in found)

    def _offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec, level: Any) -> dict[TopicPartition, int]:
        wanted = {Partition(tp.topic, tp.partition): spec for tp in partitions}
        if not wanted:
            return {}
        names = ", ".join(sorted({one.topic for one in wanted}))
        answers = self._answers(
            lambda: self._client.list_offsets(wanted, isolation_level=level, request_timeout=self._deadline_s),
            f"The offsets of {names} cannot be read",
            lambda one: f"Describe on topic {one.topic}",
        )
        found = {TopicPartition(one.topic, one.partition): int(answer.offset) for one, answer in answers.items()}
        unknown = next((tp for tp, offset in found.items() if offset < 0), None)
        if unknown is not None:  # what librdkafka says when the leader went away in the middle of the request
            raise UnreachableError(
                f"The offsets of {unknown} cannot be read: {self._bootstrap} did not answer for it.",
                CHECK_BROKERS,
            )
        return found

    def _cluster(self, doing: str) -> ClusterMetadata:
        try:
            return self._client.list_topics(timeout=self._deadline_s)
        except KafkaException as error:
            raise self._typed(error, doing) from error

    def _existing(self, name: str, future: Future[T]) -> T | None:
        try:
            return future.result(self._deadline_s * 2)
        except KafkaException as error:
            if cause(error).code() in MISSING:
                return None
            raise self._typed(error, f"Topic {name} cannot be described", f"Describe on topic {name}") from error

    def _answers(self, ask: Callable[[], Mapping[K, Future[T]]], doing: str, right: Callable[[K], str]) -> dict[K, T]:
        """All answers to a request, which is sent again while the brokers are settling; `right` is what one takes."""
        until = time.monotonic() + self._deadline_s
        while True:
            found: dict[K, T] = {}
            for key, future in ask().items():
                try:
                    found[key] = future.result(self._deadline_s * 2)
                except KafkaException as error:
                    if cause(error).code() not in SETTLING or time.monotonic() >= until:
                        raise self._typed(error, doing, right(key)) from error
                    break
            else:
                return found
            time.sleep(_PAUSE_S)

    def _typed(self, error: KafkaException, doing: str, right: str | None = None) -> Exception:
        return typed(cause(error), doing, self._bootstrap, right)


def _info(name: str, topic: Any) -> TopicInfo:
    leaderless = sum(1 for partition in topic.partitions if partition.leader is None or partition.leader.id < 0)
    return TopicInfo(name, topic_id(topic.topic_id), len(topic.partitions), leaderless)


def chunks(items: Sequence[T], size: int = POSITIONS_A_CALL) -> Iterator[Sequence[T]]:
    """`items` in runs of at most `size`."""
    return (items[at : at + size] for at in range(0, len(items), size))
