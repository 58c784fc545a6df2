"""What the brokers tell about a connector's source: its topics, log starts and last stable offsets.

    Planner, StrictRead, BoundedRead ──▶ SourceTopics ──▶ Admin

Connectors with equal client settings share their questions: `SharedAnswers` asks once for all of them, in the poller's
thread, and `SourceTopics` looks there first.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from compactor.errors import KeyfoldError
from compactor.model.record import TopicPartition
from connectors.clock import Clock
from connectors.config.topics import TopicPattern
from connectors.errors import PatternError
from connectors.kafka.admin import Admin, TopicInfo
from connectors.kafka.broker_text import broker_text
from connectors.kafka.client_log import logged
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.consumers import RepeatedEnds
from connectors.kafka.errors import UNANSWERED, cause
from connectors.match_time import LOOK_S, matches_within
from connectors.source import source_errors
from connectors.source.plan import SourceTopic

_Topics: TypeAlias = Mapping[str, TopicInfo | KafkaError]
_Offsets: TypeAlias = Mapping[TopicPartition, int | KafkaError]
"""Answers of Admin's: an error is that of its topic or partition, and a negative offset is no answer."""

TOPICS_AGE_MS: Final = 2_500
"""How old a shared answer about topics may be: half the time after which a planner asks again."""
REQUEST_S: Final = 5.0
"""How long (s) one shared request may take."""
_SHARE: Final = 0.05
"""How much of the time asking about topics may take: an answer about ten thousand partitions takes some seconds."""
_OLDEST_MS: Final = 120_000
"""How old an answer about topics may grow at most: so long a new topic may stay unseen."""


def ask_again_ms(least_ms: int, took_ms: int) -> int:
    """Returns how old an answer about topics may grow that took `took_ms`: `least_ms`, or more if that is long."""
    return max(least_ms, min(_OLDEST_MS, round(took_ms / _SHARE)))


class NoAnswerError(Exception):
    """The brokers did not answer a request; str() is why. Never leaves the package: it is retried, then made typed."""


class PartitionOffsets(msgspec.Struct, frozen=True):
    """Offsets by partition, and why a partition has none."""

    offsets: dict[TopicPartition, int]
    failures: dict[TopicPartition, str]

    @property
    def failure(self) -> str | None:
        """The first partition without an offset, and why; None if all have one."""
        tp = min(self.failures, default=None)
        return None if tp is None else f"{tp}: {self.failures[tp]}"

    def complete(self) -> dict[TopicPartition, int]:
        """Returns the offsets of all partitions; raises NoAnswerError if one has none."""
        if self.failure:
            raise NoAnswerError(self.failure)
        return self.offsets


class _ThreadsAnswers(threading.local):
    """What a thread has asked for: the ends, and at `topics_at_ms` (monotonic) the topics `asked`."""

    ends: Mapping[TopicPartition, int | KafkaError] = {}  # replaced, never changed
    topics: Mapping[str, TopicInfo | KafkaError] = {}
    asked: frozenset[str] = frozenset()
    topics_at_ms = 0


class SharedAnswers:
    """Asks once for what several connectors want to know.

    Only the thread that has refreshed is told the answers: another one may know of later offsets by now, and would take
    older ones for a log that was cut. Offsets are asked for by a read_committed consumer, which never reads.
    """

    def __init__(self, admin: Admin, consumer: Consumer, clock: Clock) -> None:
        self.admin = admin
        self._consumer = consumer
        self._ends = RepeatedEnds(consumer)
        self._clock = clock
        # The partitions that were refreshed last, and their topics.
        self._partitions: Collection[TopicPartition] = ()
        self._names: frozenset[str] = frozenset()
        # The last ends without an error among them.
        self._sound: _Offsets = {}
        self._answers = _ThreadsAnswers()

    def refresh(self, partitions: Collection[TopicPartition]) -> _Offsets:
        """Asks for the last stable offset of each partition, and for the topics if the last answer is old.

        Returns the offsets: the same object as long as `partitions` is, and none of them has moved.
        """
        if partitions is not self._partitions:
            self._partitions, self._names = partitions, frozenset(tp.topic for tp in partitions)
        names, answers = self._names, self._answers
        if self.topics(names) is None:
            try:
                answers.topics = self.admin.describe_each(names)
            except KafkaException as error:
                answers.topics = dict.fromkeys(names, cause(error))
            answers.asked, answers.topics_at_ms = names, self._clock.monotonic_ms()
        answers.ends = self._asked(partitions)
        return answers.ends

    def _asked(self, partitions: Collection[TopicPartition]) -> _Offsets:
        """Returns the offsets of `partitions`."""
        ends: _Offsets = self._ends.ask(partitions, REQUEST_S)
        if ends is self._sound:
            return ends
        failed = next((answer for answer in ends.values() if isinstance(answer, KafkaError)), None)
        if failed is None:
            self._sound = ends
        elif failed.code() not in UNANSWERED:  # nothing else says which partition's error it is
            return self.admin.offsets_each(partitions, OffsetSpec.latest())
        return ends

    def topics(self, names: Collection[str]) -> _Topics | None:
        """Returns what is known of the topics `names`; None if that is old, or they were not asked for."""
        answers = self._answers
        if not answers.asked.issuperset(names) or self._clock.monotonic_ms() - answers.topics_at_ms >= TOPICS_AGE_MS:
            return None
        return {name: answers.topics[name] for name in names if name in answers.topics}

    def ends(self) -> _Offsets:
        """Returns the last stable offsets of the last refresh; none once they are forgotten."""
        return self._answers.ends

    def forget_ends(self) -> None:
        """Forgets the offsets: a later question is for those of its own time."""
        self._answers.ends = {}

    def close(self) -> None:
        """Closes the clients' connections."""
        self._consumer.close()
        self.admin.close()


def shared_answers(clients: ClientSettings, clock: Clock) -> SharedAnswers:
    """Makes one with clients of its own."""
    return SharedAnswers(Admin(clients.admin(), REQUEST_S), Consumer(logged(clients.consumer())), clock)


class SourceTopics:
    """Answers for one connector, from `shared` or in one request each: nothing is asked again here.

    Each method raises NotAllowedError if the principal may not ask about a topic. `look_s`: how long (s) a pattern may
    take for all topics together.
    """

    def __init__(
        self, connector: str, admin: Admin, shared: SharedAnswers | None = None, look_s: float = LOOK_S
    ) -> None:
        self._connector = connector
        self._admin = admin
        self._shared = shared
        self._look_s = look_s

    def named(self, names: Iterable[str]) -> dict[str, SourceTopic]:
        """Returns those of the topics `names` that exist. Raises NoAnswerError."""
        return {name: SourceTopic(info.id, info.partitions) for name, info in self._describe(names).items()}

    def matching(self, pattern: TopicPattern) -> dict[str, SourceTopic]:
        """Returns the topics that `pattern` matches, without Kafka's internal ones.

        Raises NoAnswerError, PatternError.
        """
        try:
            every = self._admin.list_topics()
        except KeyfoldError as error:
            raise NoAnswerError(broker_text(cause(error.__cause__ or error))) from None
        try:
            with matches_within(self._look_s):
                names = [name for name in every if pattern.matches(name)]
        except PatternError as error:
            raise PatternError(f"Connector {self._connector}: {error.message}", error.action) from None
        infos = self._describe(names)
        return {name: SourceTopic(info.id, info.partitions) for name, info in infos.items() if not info.internal}

    def log_starts(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Returns the first offset of each partition."""
        return self._split(self._admin.offsets_each(partitions, OffsetSpec.earliest()))

    def log_ends(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Returns the last stable offset of each partition: a read_committed reader has to stop there."""
        wanted = list(partitions)
        ends = self._shared.ends() if self._shared else {}
        known = {tp: ends[tp] for tp in wanted if tp in ends}
        left = [tp for tp in wanted if tp not in known]
        return self._split({**known, **self._admin.offsets_each(left, OffsetSpec.latest())} if left else known)

    def _describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        wanted = frozenset(names)
        answers = self._shared.topics(wanted) if self._shared else None
        infos: dict[str, TopicInfo] = {}
        for name, answer in (self._admin.describe_each(wanted) if answers is None else answers).items():
            if isinstance(answer, KafkaError):
                self._check_allowed(answer, name)
                raise NoAnswerError(broker_text(answer))
            infos[name] = answer
        return infos

    def _split(self, answers: _Offsets) -> PartitionOffsets:
        """Sorts `answers` into offsets and failures."""
        split = PartitionOffsets({}, {})
        for tp, answer in answers.items():
            if isinstance(answer, KafkaError):
                self._check_allowed(answer, tp.topic)
                split.failures[tp] = broker_text(answer)
            elif answer < 0:
                split.failures[tp] = "its leader did not answer"
            else:
                split.offsets[tp] = answer
        return split

    def _check_allowed(self, error: KafkaError, topic: str) -> None:
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise source_errors.describe_refused(self._connector, topic, broker_text(error))
