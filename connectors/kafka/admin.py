"""The admin client: topics, offsets, groups; each request with a deadline and a typed error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
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
from connectors.clock import SYSTEM_CLOCK, Clock, Deadline
from connectors.errors import CHECK_BROKERS, ConnectorError, UnreachableError
from connectors.kafka import groups
from connectors.kafka.client_log import logged
from connectors.kafka.client_settings import Setting
from connectors.kafka.errors import MISSING, cause, is_settling, typed
from connectors.kafka.groups import CommittedOffset
from connectors.kafka.retry import call_again, poll_until

# How long (s) one request of an admin client may take. Waiting for the future takes up to twice as long, so that
# librdkafka's own time-out, which names the broker, comes first.
REQUEST_S: Final = 20.0
POSITIONS_A_CALL: Final = 1_000
"""A request with many positions that each have metadata must stay well below the broker's limit."""
OFFSETS_A_CALL: Final = 250
"""librdkafka looks for each answer among all partitions that were asked for: of 3,000 at once that takes six times the
processor time of as many in calls of this size."""
# Between two tries (s) while brokers are settling (`is_settling`).
_PAUSE_S: Final = 0.05
_PENDING_S: Final = 60.0
"""How long (s) to wait for positions in an undecided transaction."""

GONE_AFTER_MS: Final = 10_000
"""A topic is gone when no broker has known it for so long.

A broker that was just started, or that has not caught up with the controller, does not know topics that exist. One
answer that a topic is there is enough; that it is gone counts only when no broker has known it for a while.
"""
# Between two questions for a topic that no broker knows, until GONE_AFTER_MS are over.
_GONE_PAUSE_MS: Final = 500

K = TypeVar("K")
T = TypeVar("T")


class TopicInfo(Struct, frozen=True):
    """A topic as the brokers describe it.

    `id` is as `topic_id` gives it. `leaderless` counts partitions that have no leader now. `internal`: Kafka's own.
    """

    name: str
    id: str
    partitions: int
    leaderless: int = 0
    internal: bool = False


def group_id(connector: str) -> str:
    """Returns the group that holds a connector's positions, named as Kafka Connect names a sink's."""
    return f"connect-{connector}"


def new_client(config: Mapping[str, Any]) -> AdminClient:
    """Makes confluent-kafka's admin client; nothing else in the package makes one."""
    return AdminClient(logged(config))


class Admin:
    """Asks the brokers with an admin client; returns values or raises UnreachableError, NotAllowedError, OutputError.

    `deadline_s` is how long one request may take. The brokers are first asked by the first request. Not to be shared
    with a forked process.
    """

    def __init__(
        self,
        config: Mapping[str, Setting],
        deadline_s: float = REQUEST_S,
        make_client: Callable[[Mapping[str, Any]], AdminClient] = new_client,
    ) -> None:
        self._make_client = make_client
        self._config = {"log_level": 2, **config}
        # None after `close`, until the next request makes another client.
        self._made: AdminClient | None = self._make_client(self._config)
        self._bootstrap = str(config.get("bootstrap.servers", "the brokers"))
        self._deadline_s = deadline_s

    def close(self) -> None:
        """Ends the client's threads and connections; who asks once more has others.

        A client has no close of its own: it ends when nothing refers to it, which for what is part of a cycle may be
        many restarts of a connector later.
        """
        self._made = None

    @property
    def _client(self) -> AdminClient:
        if self._made is None:
            self._made = self._make_client(self._config)
        self._made.poll(0)  # serves its lines for the log, see `client_log`
        return self._made

    def list_topics(self) -> list[str]:
        """Lists the names of all topics that the principal may see, sorted."""
        return sorted(self._cluster("The topics cannot be listed").topics)

    def cluster_id(self) -> str:
        """Returns the id of the cluster, "" if the brokers have none."""
        cluster_id: str | None = self._cluster("The cluster cannot be asked for its id").cluster_id
        return cluster_id or ""

    def brokers(self) -> int:
        """Counts the brokers."""
        return len(self._cluster("The brokers cannot be counted").brokers)

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """Describes those of `topics` that exist, by name."""
        infos: dict[str, TopicInfo] = {}
        for name, answer in self.describe_each(topics).items():
            if isinstance(answer, KafkaError):
                error = KafkaException(answer)
                raise self._typed(error, f"Topic {name} cannot be described", f"Describe on topic {name}") from error
            infos[name] = answer
        return infos

    def describe_each(self, topics: Iterable[str]) -> dict[str, TopicInfo | KafkaError]:
        """Describes those of `topics` that exist, by name; has the error in place of a topic without an answer."""
        names = sorted(set(topics))
        if not names:
            return {}
        futures = self._client.describe_topics(TopicCollection(names), request_timeout=self._deadline_s)
        answers = answered(futures, self._deadline_s * 2)
        return {
            name: answer if isinstance(answer, KafkaError) else _info(name, answer)
            for name, answer in answers.items()
            if not (isinstance(answer, KafkaError) and answer.code() in MISSING)
        }

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the last stable offset of each partition: a read_committed reader has to stop there."""
        return self._offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the offset after the last replicated record of each partition, open transactions included."""
        return self._offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition."""
        return self._offsets(partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def offsets_since(self, partitions: Iterable[TopicPartition], since_ms: int) -> dict[TopicPartition, int]:
        """Returns the offset of each partition's first stable record that is stamped `since_ms` or later, if any is."""
        spec = OffsetSpec.for_timestamp(since_ms)
        offsets = self._offsets(partitions, spec, IsolationLevel.READ_COMMITTED, unanswered=OFFSET_INVALID)
        return {tp: offset for tp, offset in offsets.items() if offset >= 0}

    def offsets_each(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int | KafkaError]:
        """Returns the offset of each partition that `spec` asks for as a read_committed reader sees it, or the error.

        An offset is negative if the leader did not answer. Nothing is asked again.
        """
        wanted = {Partition(tp.topic, tp.partition): spec for tp in partitions}
        offsets: dict[TopicPartition, int | KafkaError] = {}
        futures = self._list_offsets(wanted, IsolationLevel.READ_COMMITTED) if wanted else {}
        for place, answer in answered(futures, self._deadline_s * 2).items():
            offset = answer if isinstance(answer, KafkaError) else int(answer.offset)
            offsets[TopicPartition(place.topic, place.partition)] = offset
        return offsets

    def create_topics(self, topics: Sequence[NewTopic]) -> set[str]:
        """Creates topics; returns the names of those that did not exist."""
        made: set[str] = set()
        futures = self._client.create_topics(list(topics), request_timeout=self._deadline_s) if topics else {}
        for name, answer in answered(futures, self._deadline_s * 2).items():
            if not isinstance(answer, KafkaError):
                made.add(name)
            elif answer.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                error = KafkaException(answer)
                right = f"Create on topic {name} (or on the cluster)"
                raise self._typed(error, f"Topic {name} cannot be created", right) from error
        return made

    def grow(self, topic: str, partitions: int) -> None:
        """Adds partitions to `topic` until it has `partitions`."""
        request = [NewPartitions(topic, partitions)]
        self._answers(
            lambda: self._client.create_partitions(request, request_timeout=self._deadline_s),
            f"Topic {topic} cannot be given {partitions} partitions",
            lambda _: f"Alter on topic {topic}",
        )

    def delete_topics(self, names: Sequence[str]) -> None:
        """Deletes topics with all their records, and waits until the brokers do not know them any more."""
        futures = self._client.delete_topics(list(names)) if names else {}
        for name, answer in answered(futures, self._deadline_s * 2).items():
            if isinstance(answer, KafkaError) and answer.code() not in MISSING:
                error = KafkaException(answer)
                raise self._typed(error, f"Topic {name} cannot be deleted", f"Delete on topic {name}") from error
        left = poll_until(lambda present: not present, lambda: self.describe(names), self._deadline_s, _PAUSE_S)
        if left:
            raise UnreachableError(f"Topic {min(left)} is still there after it was deleted.", CHECK_BROKERS)

    def has_group(self, group: str) -> bool:
        """Returns whether the brokers know the consumer group `group`."""
        description = self._of_group(
            lambda: self._client.describe_consumer_groups([group], request_timeout=self._deadline_s)[group],
            f"Group {group} cannot be described",
            f"Describe on group {group}",
        )
        return description is not None and description.state != ConsumerGroupState.DEAD

    def delete_group(self, group: str) -> None:
        """Deletes a consumer group with its positions; one that does not exist is no error.

        Raises ConnectorError if it has members.
        """
        self._of_group(
            lambda: self._client.delete_consumer_groups([group], request_timeout=self._deadline_s)[group],
            f"Group {group} cannot be deleted",
            f"Delete on group {group}",
        )

    def _of_group(self, ask: Callable[[], Future[T]], doing: str, right: str) -> T | None:
        """Returns the answer about a group, None if there is none; asks again while its coordinator is settling."""
        try:
            return call_again(lambda: answer_of(ask(), self._deadline_s * 2), is_settling, self._deadline_s, _PAUSE_S)
        except KafkaException as error:
            code = cause(error).code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                return None
            if code == KafkaError.NON_EMPTY_GROUP:
                raise ConnectorError(
                    f"{doing}: it has members, which keyfold's consumers never are.",
                    "Stop the consumer or the Kafka Connect sink of that name, then try again.",
                ) from error
            raise self._typed(error, doing, right) from error

    def topic_config(self, name: str) -> dict[str, str]:
        """Returns the settings of a topic that are in effect, defaults included."""
        return self.topic_configs([name])[name]

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns the settings in effect of several topics, by topic name, with one request."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
        if not resources:
            return {}
        answers = self._answers(
            lambda: self._client.describe_configs(resources, request_timeout=self._deadline_s),
            f"The settings of topic {', '.join(wanted.name for wanted in resources)} cannot be read",
            lambda resource: f"DescribeConfigs on topic {resource.name}",
        )
        return {
            wanted.name: {key: entry.value for key, entry in answers[wanted].items() if entry.value is not None}
            for wanted in resources
        }

    def committed(
        self,
        group: str,
        partitions: Sequence[TopicPartition],
        pending_s: float = _PENDING_S,
        member: Consumer | None = None,
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Reads the position that `group` has committed for each partition, None if there is none.

        `member`: the consumer to ask with (`groups.member`); without it one is made for this call. Positions in a
        transaction that is not decided yet are waited for, up to `pending_s`. Raises as `groups.committed`.
        """
        consumer = member or groups.member(self._config, group)
        positions: dict[TopicPartition, CommittedOffset | None] = {}
        try:
            for chunk in chunks(partitions, OFFSETS_A_CALL):
                positions |= groups.committed(consumer, self._config, group, chunk, pending_s)
        finally:
            if member is None:
                consumer.close()
        return positions

    def members(self, group: str) -> list[str]:
        """Lists the members of `group` now, each as its client id and host; none if the brokers do not answer."""
        try:
            future = self._client.describe_consumer_groups([group], request_timeout=self._deadline_s)[group]
            members = answer_of(future, self._deadline_s * 2).members
        except KafkaException:
            return []
        return sorted(f"{member.client_id} at {member.host.lstrip('/')}" for member in members)

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, level: Any, unanswered: int = -1
    ) -> dict[TopicPartition, int]:
        """Returns the offset that `spec` asks for of each partition; at most `unanswered` stands for no answer.

        A broker answers -1 if no record has the time that is asked for, which a question without a time never gets.
        """
        wanted = {Partition(tp.topic, tp.partition): spec for tp in partitions}
        if not wanted:
            return {}
        names = ", ".join(sorted({place.topic for place in wanted}))
        answers = self._answers(
            lambda: self._list_offsets(wanted, level),
            f"The offsets of {names} cannot be read",
            lambda place: f"Describe on topic {place.topic}",
        )
        offsets = {
            TopicPartition(place.topic, place.partition): int(answer.offset) for place, answer in answers.items()
        }
        unknown = next((tp for tp, offset in offsets.items() if offset <= unanswered), None)
        if unknown is not None:  # what librdkafka says when the leader went away in the middle of the request
            raise UnreachableError(
                f"The offsets of {unknown} cannot be read: {self._bootstrap} did not answer for it.",
                CHECK_BROKERS,
            )
        return offsets

    def _cluster(self, doing: str) -> ClusterMetadata:
        try:
            return self._client.list_topics(timeout=self._deadline_s)
        except KafkaException as error:
            raise self._typed(error, doing) from error

    def _list_offsets(self, wanted: dict[Partition, OffsetSpec], level: Any) -> dict[Partition, Future[Any]]:
        parts = (dict(some) for some in chunks(list(wanted.items()), OFFSETS_A_CALL))
        asked = [
            self._client.list_offsets(part, isolation_level=level, request_timeout=self._deadline_s) for part in parts
        ]
        return {partition: future for futures in asked for partition, future in futures.items()}

    def _answers(self, ask: Callable[[], Mapping[K, Future[T]]], doing: str, right: Callable[[K], str]) -> dict[K, T]:
        """Returns all answers to a request, sent again while brokers are settling; `right` names the ACL for a key."""

        def answers() -> dict[K, T]:
            known: dict[K, T] = {}
            for key, answer in answered(ask(), self._deadline_s * 2).items():
                if not isinstance(answer, KafkaError):
                    known[key] = answer
                    continue
                error = KafkaException(answer)
                if is_settling(error):
                    raise error
                raise self._typed(error, doing, right(key)) from error
            return known

        try:
            return call_again(answers, is_settling, self._deadline_s, _PAUSE_S)
        except KafkaException as error:
            raise self._typed(error, doing) from error

    def _typed(self, error: KafkaException, doing: str, right: str | None = None) -> Exception:
        return typed(cause(error), doing, self._bootstrap, right)


def described(
    describe: Callable[[Iterable[str]], Mapping[str, T]],
    names: Iterable[str],
    *,
    known: Iterable[str],
    clock: Clock = SYSTEM_CLOCK,
) -> dict[str, T]:
    """Returns what `describe` returns for those of `names` that exist.

    Missing ones that were there before (`known`) are asked for again until they are there or GONE_AFTER_MS are over.
    Raises what `describe` raises.
    """
    present = dict(describe(set(names)))
    waiting = set(known) & set(names)
    until_ms = clock.monotonic_ms() + GONE_AFTER_MS
    while (absent := waiting - present.keys()) and clock.monotonic_ms() < until_ms:
        clock.sleep_ms(_GONE_PAUSE_MS)
        present |= describe(absent)
    return present


def topic_id(uuid: object) -> str:
    """Returns a topic's id in URL-safe base64 without padding, as `kafka-topics.sh --describe` shows it.

    confluent-kafka's Uuid prints the other alphabet of base64; an operator would search for it in vain.
    """
    return str(uuid).rstrip("=").translate(str.maketrans("+/", "-_"))


def chunks(items: Sequence[T], size: int = POSITIONS_A_CALL) -> Iterator[Sequence[T]]:
    """Cuts `items` into runs of at most `size`."""
    return (items[at : at + size] for at in range(0, len(items), size))


def _info(name: str, topic: Any) -> TopicInfo:
    leaderless = sum(1 for partition in topic.partitions if partition.leader is None or partition.leader.id < 0)
    return TopicInfo(name, topic_id(topic.topic_id), len(topic.partitions), leaderless, bool(topic.is_internal))


def answered(futures: Mapping[K, Future[T]], seconds: float) -> dict[K, T | KafkaError]:
    """Returns the answer of each of `futures`, or the error; all of them are waited for for `seconds` together.

    One that does not come says nothing of the others: it has an error as if its broker had not answered.
    """
    deadline = Deadline(seconds)
    answers: dict[K, T | KafkaError] = {}
    for key, future in futures.items():
        try:
            answers[key] = answer_of(future, deadline.left_s)
        except KafkaException as error:
            answers[key] = cause(error)
    return answers


def answer_of(future: Future[T], seconds: float) -> T:
    """Returns the answer that comes within `seconds`. Raises KafkaException otherwise."""
    try:
        return future.result(max(0.0, seconds))
    except TimeoutError:
        late = KafkaError(KafkaError._TIMED_OUT, "the admin client did not answer in time")
        raise KafkaException(late) from None
