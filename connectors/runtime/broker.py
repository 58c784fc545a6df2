"""What the engine asks of Kafka, answered with Kafka: topics, positions, the changelog (compactor.ports.Outside)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Final, ParamSpec, TypeVar, cast

import structlog

from compactor.errors import PublishInterruptedError
from compactor.model.actions import AddPartition, AddTopic, AnyAction, CloseTopic, ReopenTopic
from compactor.model.log import PartitionLog
from compactor.model.position import Position, Tail, Unknown
from compactor.model.record import RangeRead, TopicPartition
from compactor.model.state import State, Topic
from compactor.ports import Publisher
from compactor.storage.base import Storage
from connectors.config.connector import ConnectorConfig
from connectors.config.topics import matches, missing, select
from connectors.errors import PUBLISH_ANEW, NotAllowedError, OutputError, SourceMissingError, UnreachableError
from connectors.kafka import gone
from connectors.kafka.admin import Admin, TopicInfo
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.retry import NEVER, Retry
from connectors.sinks import output_reader as tail
from connectors.sinks import output_topic
from connectors.sinks.local import LocalPublisher, Sessions
from connectors.sinks.positions import read_positions
from connectors.sinks.publisher import ChangelogPublisher, fence_all
from connectors.source.aside import CUT_DELETED, TRUNCATED, Aside, advice, is_aside, of_id, of_log, refuse_all

DELETED: Final = "deleted"
UNNAMED: Final = "no longer named"

_log = structlog.get_logger()

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def _again(what: str) -> Callable[[Callable[Asked, Answer]], Callable[Asked, Answer]]:
    """Has a question asked again as errors.retry.* says: one of which the second time changes nothing more."""

    def around(ask: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
        @wraps(ask)
        def asked(*args: Asked.args, **named: Asked.kwargs) -> Answer:
            gateway = cast("KafkaBroker", args[0])
            return gateway._retry.run(lambda: ask(*args, **named), what, stopped=gateway._stopped)

        return asked

    return around


class KafkaBroker:
    """One connector's Kafka."""

    def __init__(self, connector: ConnectorConfig, clients: ClientSettings, admin: Admin, storage: Storage) -> None:
        self._connector = connector
        self._clients = clients
        self._admin = admin
        self._storage = storage
        self._warned: set[str] = set()
        self._told: set[str] = set()
        self._sessions = Sessions()
        self._retry = NEVER
        self._stopped: Callable[[], bool] = lambda: False

    def retry_until(self, stopped: Callable[[], bool]) -> None:
        """From here on, questions that are not answered are asked again as errors.retry.* says, until `stopped`.

        In a take-over they are not: it is begun anew with the back-off of the connector.
        """
        self._retry = Retry(self._connector.errors_retry_timeout_ms, self._connector.errors_retry_delay_max_ms)
        self._stopped = stopped

    @_again("topics")
    def discover(self, state: State) -> tuple[AnyAction, ...]:
        """Step T3: what the topics that are named now, as the brokers have them, change in the catalog.

        Raises SourceMissingError, SourceChangedError, OutputError, NotAllowedError, UnreachableError.
        """
        self._ensure_dead_letters()
        found = self._described(state)
        known = state.topics
        aside = self._aside(known, found)
        refuse_all(aside, found)
        sound = {name: info for name, info in found.items() if name not in aside}
        closed = [CloseTopic(topic=name, reason=why) for name in known if (why := self._gone(known[name], found))]
        self._check([known[name] for name in known if name in sound])
        reopened = [ReopenTopic(topic=name) for name, topic in known.items() if topic.closed and name in sound]
        return (*closed, *self._set_aside(state, aside), *reopened, *self._grow(state, sound.values()))

    def look_into(self, state: State) -> tuple[AnyAction, ...]:
        """The rest of step T3: source topics that cannot be read on are set aside.

        They have another id, end below our position, or have lost records that were not read. What the brokers do not
        say is found out by reading. Raises SourceChangedError and DataLossError where no
        other topic is left.
        """
        named = [name for name in state.topics if matches(self._connector, name)]
        found = gone.described(self._admin.describe, named, known=self._awaited(state))
        aside = self._aside(state.topics, found)
        asked = [log for log in state.logs if log.topic in found and log.topic not in aside]
        starts, ends = self._bounds([log.tp for log in asked])
        for log in asked:
            one = of_log(self._connector.name, log, starts.get(log.tp), ends.get(log.tp), skip_lost=self._skips)
            aside |= {log.topic: one} if one else {}
        refuse_all(aside, found)
        return tuple(self._set_aside(state, aside))

    @_again("topics of a batch")
    def admit(self, state: State, reads: Sequence[RangeRead]) -> tuple[AnyAction, ...]:
        """See Outside: topics and partitions that a batch brought first."""
        known = state.by_partition()
        names = sorted(
            {read.tp.topic for read in reads if read.tp not in known and matches(self._connector, read.tp.topic)}
        )
        found = self._admin.describe(names)
        sound = {name: info for name, info in found.items() if name not in self._aside(state.topics, found)}
        self._check([state.topics[name] for name in sound if name in state.topics])
        return self._grow(state, sound.values(), {read.tp: read.lo for read in reversed(reads)})

    @_again("ends of the source")
    def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The last stable offsets of those of `partitions` whose topics exist."""
        wanted = list(partitions)
        there = self._admin.describe({tp.topic for tp in wanted})
        return self._admin.ends([tp for tp in wanted if tp.topic in there])

    @_again("transactional ids")
    def fence(self, buckets: Iterable[int]) -> None:
        """See Outside."""
        fence_all(self._clients, [self._connector.transactional_id(bucket) for bucket in buckets])

    @_again("positions")
    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Position | None]:
        """See Outside."""
        return read_positions(self._admin, self._connector.group_id, partitions)

    @_again("end of an output")
    def tail(self, state: State, log: PartitionLog) -> Tail:
        """See Outside."""
        output = state.topics[log.topic].output
        if output is None:
            return None
        if self._connector.output_source_headers_enable:
            return tail.last_source_offset(self._clients.consumer(), output, log.tp)
        held = tail.holds_records(self._clients.consumer(), output, log.partition)
        return Unknown.UNKNOWN if held else None

    def publisher(self, state: State) -> Publisher:
        """See Outside. What this process kept open would be shut out by its tasks."""
        self._sessions.close()
        return self._publisher(state)

    def local_publisher(self, state: State, broken_off: Callable[[], bool]) -> Publisher:
        """See Outside."""
        return LocalPublisher(self._publisher(state), self._sessions, broken_off)

    def close(self) -> None:
        """Gives up what publishing has kept open."""
        self._sessions.close()

    @_again("starts of an output")
    def output_starts(self, state: State, topic: str) -> Mapping[int, int]:
        """See Outside."""
        output = state.topics[topic].output
        if output is None:
            return {}
        wanted = [TopicPartition(output, log.partition) for log in state.logs if log.topic == topic]
        return {tp.partition: offset for tp, offset in self._admin.starts(wanted).items()}

    @_again("settings of an output")
    def resume_safe_ms(self, state: State, topic: str) -> int | None:
        """See Outside: by the output's own settings, as they are now."""
        output = state.topics[topic].output
        if output is None:
            return None
        return output_topic.resume_safe_ms(self._admin.topic_config(output))

    def _publisher(self, state: State) -> ChangelogPublisher:
        return ChangelogPublisher.of(self._connector, self._clients, self._storage, state)

    def _ensure_dead_letters(self) -> None:
        """Makes the dead letter topic; warns once of one that exists and may lose its records at once."""
        name = self._connector.dead_letter_topic
        if name is None:
            return
        output_topic.ensure_dead_letters(self._admin, self._connector)
        if name in self._warned:
            return
        with suppress(NotAllowedError):  # nothing else needs this right
            if reason := output_topic.dead_letter_warning(self._admin.topic_config(name)):
                _log.warning("dead letters may expire", connector=self._connector.name, topic=name, reason=reason)
        self._warned.add(name)

    def _described(self, state: State) -> dict[str, TopicInfo]:
        """The topics that the connector names and that exist."""
        known = self._awaited(state)
        named = self._connector.topics or select(self._connector, self._admin.list_topics())
        found = gone.described(self._admin.describe, known.union(named), known=known)
        absent = [name for name in missing(self._connector, found) if name not in state.topics]
        if absent:
            raise SourceMissingError(
                f"Connector {self._connector.name}: source topic {absent[0]} does not exist.",
                "Create it, or correct topics.",
            )
        return found

    def _awaited(self, state: State) -> set[str]:
        """The topics of which one answer that they are not there is not enough."""
        open_ = (topic.topic for topic in state.topics.values() if topic.closed is None or is_aside(topic))
        return {name for name in open_ if matches(self._connector, name)}

    def _gone(self, topic: Topic, found: Mapping[str, TopicInfo]) -> str | None:
        """Why `topic` is to be closed now: it was deleted, or is no longer named. None where it stays as it is."""
        if topic.topic in found or topic.closed in (DELETED, CUT_DELETED, UNNAMED):
            return None
        if matches(self._connector, topic.topic):
            return CUT_DELETED if topic.closed == TRUNCATED else DELETED
        return None if is_aside(topic) else UNNAMED

    def _aside(self, known: Mapping[str, Topic], found: Mapping[str, TopicInfo]) -> dict[str, Aside]:
        """The topics of `found` that are set aside, or have to be, by name: their ids are not those of the catalog."""
        there = (
            of_id(self._connector.name, known[name], info.id, skip_lost=self._skips)
            for name, info in found.items()
            if name in known
        )
        return {one.topic: one for one in there if one is not None}

    @property
    def _skips(self) -> bool:
        return self._connector.on_data_loss == "skip"

    def _set_aside(self, state: State, aside: Mapping[str, Aside]) -> list[AnyAction]:
        """Closes the topics of `aside`; logs each once in a life."""
        for name in sorted(aside.keys() - self._told):
            one = aside[name]
            _log.error(
                "source topic set aside, the others go on", topic=name, error=f"{one.error.message} {advice(one.kind)}"
            )
        self._told |= aside.keys()
        return [
            CloseTopic(topic=name, reason=one.kind)
            for name, one in aside.items()
            if state.topics[name].closed != one.kind
        ]

    def _bounds(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        """Log starts and last stable offsets; none where the brokers do not say."""
        try:
            return self._admin.starts(partitions), self._admin.ends(partitions)
        except (UnreachableError, PublishInterruptedError):
            return {}, {}

    def _check(self, topics: Sequence[Topic]) -> None:
        """The outputs of `topics` must be those that the catalog knows, by id, and still fit to be one."""
        for topic in topics:
            self._check_name(topic)
        outputs = {topic.output: topic for topic in topics if topic.output is not None}
        found = gone.described(self._admin.describe, outputs, known=outputs)
        for topic in outputs.values():
            self._check_id(topic, found)
        self._check_settings(outputs)

    def _check_name(self, topic: Topic) -> None:
        configured, output = self._connector.output_topic(topic.topic), topic.output
        if configured != output:
            raise OutputError(
                f"Connector {self._connector.name}: output.topic is {configured or 'none'} for source topic "
                f"{topic.topic}, but it began with {output or 'none'}.",
                "Set output.topic back, or use a new connector name for the new output topic.",
            )

    def _check_id(self, topic: Topic, found: Mapping[str, TopicInfo]) -> None:
        output = topic.output or ""
        info = found.get(output)
        if info is None or info.id != topic.output_id:
            what = "was deleted" if info is None else f"was recreated (its id was {topic.output_id}, now {info.id})"
            raise OutputError(
                f"Connector {self._connector.name}: output topic {output} {what}; what was published is gone.",
                PUBLISH_ANEW,
            )

    def _check_settings(self, outputs: Mapping[str, Topic]) -> None:
        """Somebody may have altered an output; what is only worth a warning is told once in a life."""
        new = outputs.keys() - self._warned
        configs = self._admin.topic_configs([*outputs, *(outputs[name].topic for name in new)])
        for name, topic in outputs.items():
            output_topic.check(self._connector, name, configs[name])
            if name in new:
                output_topic.warn(self._connector, name, configs[name], configs[topic.topic])
        self._warned |= new

    def _grow(
        self, state: State, found: Iterable[TopicInfo], starts: Mapping[TopicPartition, int] | None = None
    ) -> tuple[AnyAction, ...]:
        """Actions for topics and partitions that are not in the catalog; output topics are made or grown first."""
        grown = [info for info in found if len(_partitions(state, info.name)) < info.partitions]
        actions: list[AnyAction] = []
        for info in grown:
            actions += self._add_topic(state, info)
        new = [
            tp
            for info in grown
            for tp in (TopicPartition(info.name, number) for number in range(info.partitions))
            if tp.partition not in _partitions(state, info.name)
        ]
        return (*actions, *self._add_partitions(state, new, starts or {}))

    def _add_topic(self, state: State, info: TopicInfo) -> list[AnyAction]:
        name = self._connector.output_topic(info.name)
        output_id = None
        if name is not None:
            output_id = output_topic.ensure(self._admin, self._connector, info.name, name, info.partitions)
        if info.name in state.topics:
            return []
        return [AddTopic(topic=info.name, topic_id=info.id, output=name, output_id=output_id)]

    def _add_partitions(
        self, state: State, new: Sequence[TopicPartition], starts: Mapping[TopicPartition, int]
    ) -> list[AnyAction]:
        if not new:
            return []
        ends = self._admin.ends(new)
        low = self._admin.starts(new)
        known = len(state.logs)
        return [
            AddPartition(
                topic=tp.topic,
                partition=tp.partition,
                bucket=(known + number) % state.buckets,
                start=starts.get(tp, 0 if tp.topic in state.topics else low[tp]),
                backlog_end=ends[tp],
            )
            for number, tp in enumerate(new)
        ]


def _partitions(state: State, topic: str) -> frozenset[int]:
    return frozenset(log.partition for log in state.logs if log.topic == topic)
