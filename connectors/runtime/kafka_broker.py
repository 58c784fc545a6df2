"""Kafka as compactor.ports.Broker: topics, positions, the changelog of one connector."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from itertools import groupby
from typing import Final, ParamSpec, TypeVar, cast

import structlog

from compactor.errors import NotVisibleError, PublishInterruptedError
from compactor.model.actions import AnyAction, CloseTopic, ReopenTopic
from compactor.model.log import PartitionLog
from compactor.model.output_partitions import that_may_hold, with_output_partition
from compactor.model.position import Position, Tail, Unknown
from compactor.model.record import RangeRead, TopicPartition
from compactor.model.state import CatalogState, Topic
from compactor.ports import Publisher
from compactor.storage.base import Storage
from connectors.config.connector import ConnectorConfig
from connectors.config.selection import matches, missing, select
from connectors.errors import PUBLISH_ANEW, NotAllowedError, OutputError, SourceMissingError, UnreachableError
from connectors.kafka.admin import Admin, TopicInfo, described
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.producers import fence_all
from connectors.kafka.retry import NEVER, Retry
from connectors.match_time import START_S, matches_within
from connectors.runtime.added_topics import added_topics, check_spread
from connectors.sinks import output_reader, output_topic, output_visibility
from connectors.sinks.output_reader import start_of
from connectors.sinks.producer_session import read_positions
from connectors.sinks.publisher import ChangelogPublisher, KeptSessions, LocalPublisher
from connectors.source.source_errors import (
    CUT_DELETED,
    DELETED,
    TRUNCATED,
    UNNAMED,
    ClosedTopic,
    advice,
    closed_by_id,
    closed_by_log,
    is_faulty,
    require_another,
)

_log = structlog.get_logger()

SETTINGS_AT_ONCE: Final = 100
"""Of how many outputs the settings are asked again in one look: a thousand answers are a second of Python."""
P = ParamSpec("P")
T = TypeVar("T")


def _retried(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a method of KafkaBroker: it is called again as errors.retry.* says, so twice must do no harm.

    Each call may match patterns for START_S.
    """

    def around(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def retried(*args: P.args, **named: P.kwargs) -> T:
            broker = cast("KafkaBroker", args[0])
            bounded = matches_within(START_S)(method)
            return broker._retry.run(lambda: bounded(*args, **named), what, stopped=broker._stopped)

        return retried

    return around


class KafkaBroker:
    """Answers the engine with the Kafka clients of one connector.

    `visible_ms`: how long readers may take to see what is committed; None: output_visibility.VISIBLE_MS. `others` gives
    the connectors of the worker, by which what this one writes may come back.
    """

    def __init__(
        self,
        connector: ConnectorConfig,
        clients: ClientSettings,
        admin: Admin,
        storage: Storage,
        visible_ms: int | None = None,
        others: Callable[[], Iterable[ConnectorConfig]] = tuple,
    ) -> None:
        self._others = others
        self._visible_ms = visible_ms
        self._connector = connector
        self._clients = clients
        self._admin = admin
        self._storage = storage
        self._warned: set[str] = set()
        self._checked_last = ""
        self._logged: set[str] = set()
        self._sessions = KeptSessions()
        self._retry = NEVER
        self._stopped: Callable[[], bool] = lambda: False

    def retry_until(self, stopped: Callable[[], bool]) -> None:
        """Repeats requests that are not answered from now on, as errors.retry.* says, until `stopped` returns True.

        A take-over repeats none: it is begun again after the back-off of the connector.
        """
        self._retry = Retry(self._connector.errors_retry_timeout_ms, self._connector.errors_retry_delay_max_ms)
        self._stopped = stopped

    @_retried("topics")
    def discover(self, state: CatalogState) -> tuple[AnyAction, ...]:
        """Takes step T3: returns the actions that bring the catalog up to the topics that are named and exist now.

        Raises SourceMissingError, SourceChangedError, OutputError, NotAllowedError, UnreachableError.
        """
        self._ensure_dead_letters()
        topics = self._described(state)
        known = state.topics
        faulty = self._closed_by_id(known, topics)
        require_another(faulty, topics)
        sound = {name: info for name, info in topics.items() if name not in faulty}
        closed = [CloseTopic(topic=name, reason=why) for name in known if (why := self._gone(known[name], topics))]
        self._check([known[name] for name in known if name in sound])
        reopened = [ReopenTopic(topic=name) for name, topic in known.items() if topic.closed and name in sound]
        added = added_topics(self._admin, self._connector, state, sound.values(), self._others)
        return (*closed, *self._close(state, faulty), *reopened, *added)

    @matches_within(START_S)
    def look_into(self, state: CatalogState) -> tuple[AnyAction, ...]:
        """Takes the rest of step T3: returns the actions that close source topics which cannot be read on.

        They have another id, end below our position, or have lost records that were not read. What the brokers do not
        answer is found out by reading. Raises SourceChangedError and DataLossError if no other topic is left.
        """
        named = [name for name in state.topics if matches(self._connector, name)]
        topics = described(self._admin.describe, named, known=self._awaited(state))
        faulty = self._closed_by_id(state.topics, topics)
        asked = [log for log in state.logs if log.topic in topics and log.topic not in faulty]
        starts, ends = self._bounds([log.tp for log in asked])
        for log in asked:
            start, end = starts.get(log.tp), ends.get(log.tp)
            closed = closed_by_log(self._connector.name, log, start, end, skip_lost=self._skips)
            faulty |= {log.topic: closed} if closed else {}
        require_another(faulty, topics)
        return tuple(self._close(state, faulty))

    @_retried("topics of a batch")
    def admit(self, state: CatalogState, reads: Sequence[RangeRead]) -> tuple[AnyAction, ...]:
        """See Broker: returns the actions for topics and partitions that a batch brought first."""
        known = state.by_partition()
        names = sorted(
            {read.tp.topic for read in reads if read.tp not in known and matches(self._connector, read.tp.topic)}
        )
        topics = self._admin.describe(names)
        sound = {name: info for name, info in topics.items() if name not in self._closed_by_id(state.topics, topics)}
        self._check([state.topics[name] for name in sound if name in state.topics])
        starts = {read.tp: read.lo for read in reversed(reads)}
        return added_topics(self._admin, self._connector, state, sound.values(), self._others, starts)

    @_retried("ends of the source")
    def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Returns the last stable offsets of those of `partitions` that have a topic."""
        wanted = list(partitions)
        there = self._admin.describe({tp.topic for tp in wanted})
        return self._admin.ends([tp for tp in wanted if tp.topic in there])

    @_retried("transactional ids")
    def fence(self, buckets: Iterable[int]) -> None:
        """See Broker."""
        fence_all(self._clients.producer(), [self._connector.transactional_id(bucket) for bucket in buckets])

    @_retried("positions")
    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Position | None]:
        """See Broker."""
        return read_positions(self._admin, self._connector.group_id, partitions)

    @_retried("end of an output")
    def tail(self, state: CatalogState, log: PartitionLog) -> Tail:
        """See Broker. Waits up to `visible_ms` for transactions that are open there."""
        output = state.topics[log.topic].output
        if output is None:
            return None
        doing = f"Connector {state.connector}: how far {log.tp} was published cannot be read from its output"
        named = {TopicPartition(output, other.partition): other for other in that_may_hold(state, log)}
        output_visibility.require_stable(doing, dict.fromkeys(named, 0), self._admin, self._stopped, self._visible_ms)
        if not state.is_of_topics:
            return self._tail_of_partition(output, log)
        ends = self._admin.high_watermarks(named)
        starts = {place: start_of(other.generation) if log.generation else 0 for place, other in named.items()}
        config = self._clients.consumer()
        tails = [
            output_reader.last_source_offset(config, output, log.tp, log.generation, (place.partition, start))
            for place, start in starts.items()
            if ends[place] > start
        ]
        offsets = [tail for tail in tails if isinstance(tail, int)]
        return max(offsets) if offsets else Unknown.UNKNOWN if Unknown.UNKNOWN in tails else None

    def _tail_of_partition(self, output: str, log: PartitionLog) -> Tail:
        if self._connector.output_source_headers_enable:
            return output_reader.last_source_offset(self._clients.consumer(), output, log.tp, log.generation)
        held = output_reader.holds_records(self._clients.consumer(), output, log.partition, log.generation)
        return Unknown.UNKNOWN if held else None

    def publisher(self, state: CatalogState) -> Publisher:
        """See Broker. Drops the sessions that this process has kept: the publish tasks fence their producers."""
        self._sessions.close()
        return self._publisher(state)

    def local_publisher(self, state: CatalogState, stopped: Callable[[], bool]) -> Publisher:
        """See Broker."""
        return LocalPublisher(self._publisher(state), self._sessions, stopped)

    def drop_unused(self) -> None:
        """Drops the sessions that publishing has kept and not used for long; no publish may be under way."""
        self._sessions.drop_unused()

    def close(self) -> None:
        """Drops the sessions that publishing has kept, and closes the admin client."""
        self._sessions.close()
        self._admin.close()

    @_retried("starts of an output")
    def output_starts(self, state: CatalogState, topic: str) -> Mapping[int, int]:
        """See Broker."""
        output = state.topics[topic].output
        if output is None:
            return {}
        wanted = [TopicPartition(output, log.partition) for log in with_output_partition(state, topic)]
        return {tp.partition: offset for tp, offset in self._admin.starts(wanted).items()}

    @_retried("what readers of an output see")
    def hidden(self, state: CatalogState, topics: Collection[str]) -> Mapping[str, str]:
        """See Broker. Asks once if nothing is hidden, else for `visible_ms` at most."""
        published = output_visibility.published_ends(state, topics)
        ends = output_visibility.await_visible(published, self._admin.ends, self._stopped, wait_ms=self._visible_ms)
        sources = {topic.output: topic.topic for topic in state.topics.values()}
        by_source = groupby(ends, lambda end: sources[end.place.topic])
        return {str(topic): output_visibility.reason(hidden) for topic, hidden in by_source}

    def check_visible(self, state: CatalogState, *, letters: bool = False) -> None:
        """Returns once read_committed readers see all that the catalog says was published, with `letters` those too.

        Raises NotVisibleError if they do not in `visible_ms`, and what the brokers do not answer.
        """
        hidden = self.hidden(state, state.topics)
        reasons = [*hidden.values(), *(self._hidden_letters() if letters else ())]
        if reasons and not self._stopped():
            raise NotVisibleError(
                f"Connector {state.connector}: {reasons[0]}",
                "Nothing is lost and nothing is sent again: run the command again, or begin to read once the last "
                "stable offset is there; see the brokers' logs if that lasts.",
            )

    @_retried("what readers of the dead letters see")
    def _hidden_letters(self) -> tuple[str, ...]:
        """Returns why readers do not see all letters, if they do not: ours lie below the high watermarks of now."""
        name = self._connector.dead_letter_topic or ""
        topics = self._admin.describe([name]) if name else {}
        places = [TopicPartition(name, number) for info in topics.values() for number in range(info.partitions)]
        published = self._admin.high_watermarks(places)
        hidden = output_visibility.await_visible(published, self._admin.ends, self._stopped, wait_ms=self._visible_ms)
        return (output_visibility.reason(hidden),) if hidden else ()

    @_retried("settings of an output")
    def resume_safe_ms(self, state: CatalogState, topic: str) -> int | None:
        """See Broker: by the output's own settings, as they are now."""
        output = state.topics[topic].output
        if output is None:
            return None
        return output_topic.resume_safe_ms(self._admin.topic_config(output))

    def _publisher(self, state: CatalogState) -> ChangelogPublisher:
        return ChangelogPublisher.of(self._connector, self._clients, self._storage, state)

    def _ensure_dead_letters(self) -> None:
        """Creates the dead letter topic; warns once of an existing one that may lose its records at once."""
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

    def _described(self, state: CatalogState) -> dict[str, TopicInfo]:
        """Describes the topics that the connector names and that exist. Raises SourceMissingError."""
        known = self._awaited(state)
        named = self._connector.topics or select(self._connector, self._admin.list_topics())
        topics = described(self._admin.describe, known.union(named), known=known)
        absent = [name for name in missing(self._connector, topics) if name not in state.topics]
        if absent:
            raise SourceMissingError(
                f"Connector {self._connector.name}: source topic {absent[0]} does not exist.",
                "Create it, or correct topics.",
            )
        return topics

    def _awaited(self, state: CatalogState) -> set[str]:
        """Returns the known topics that count as deleted only when no broker has known them for a while."""
        open_ = (topic.topic for topic in state.topics.values() if topic.closed is None or is_faulty(topic))
        return {name for name in open_ if matches(self._connector, name)}

    def _gone(self, topic: Topic, topics: Mapping[str, TopicInfo]) -> str | None:
        """Returns why `topic` is to be closed: it was deleted, or is no longer named. None if it stays as it is."""
        if topic.topic in topics or topic.closed in (DELETED, CUT_DELETED, UNNAMED):
            return None
        if matches(self._connector, topic.topic):
            return CUT_DELETED if topic.closed == TRUNCATED else DELETED
        return None if is_faulty(topic) else UNNAMED

    def _closed_by_id(self, known: Mapping[str, Topic], topics: Mapping[str, TopicInfo]) -> dict[str, ClosedTopic]:
        """Returns the topics of `topics` that are closed by a fault, or have to be, by name; see `closed_by_id`."""
        closed = (
            closed_by_id(self._connector.name, known[name], info.id, skip_lost=self._skips)
            for name, info in topics.items()
            if name in known
        )
        return {topic.topic: topic for topic in closed if topic is not None}

    @property
    def _skips(self) -> bool:
        return self._connector.on_data_loss == "skip"

    def _close(self, state: CatalogState, faulty: Mapping[str, ClosedTopic]) -> list[AnyAction]:
        """Returns the actions that close those topics of `faulty` that are not closed yet; logs each once.

        What has closed a topic for a bad record has logged that.
        """
        for name in sorted(name for name in faulty.keys() - self._logged if not state.topics[name].is_rejected):
            closed = faulty[name]
            error = f"{closed.error.message} {advice(closed.fault)}"
            _log.error("source topic set aside, the others go on", topic=name, error=error)
        self._logged |= faulty.keys()
        return [
            CloseTopic(topic=name, reason=closed.fault)
            for name, closed in faulty.items()
            if state.topics[name].closed != closed.fault
        ]

    def _bounds(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        """Returns log starts and last stable offsets; none if the brokers do not answer."""
        try:
            return self._admin.starts(partitions), self._admin.ends(partitions)
        except (UnreachableError, PublishInterruptedError):
            return {}, {}

    def _check(self, topics: Sequence[Topic]) -> None:
        """Checks that the outputs of `topics` are those that the catalog knows, by id, and fit. Raises OutputError."""
        for topic in topics:
            self._check_name(topic)
        outputs = {topic.output: topic for topic in topics if topic.output is not None}
        described_outputs = described(self._admin.describe, outputs, known=outputs)
        for topic in outputs.values():
            self._check_id(topic, described_outputs)
            check_spread(self._connector, topic, described_outputs)
        self._check_settings(outputs)

    def _check_name(self, topic: Topic) -> None:
        configured, output = self._connector.output_topic(topic.topic), topic.output
        if configured != output:
            raise OutputError(
                f"Connector {self._connector.name}: output.topic is {configured or 'none'} for source topic "
                f"{topic.topic}, but it began with {output or 'none'}.",
                "Set output.topic back, or use a new connector name for the new output topic.",
            )

    def _check_id(self, topic: Topic, described_outputs: Mapping[str, TopicInfo]) -> None:
        output = topic.output or ""
        info = described_outputs.get(output)
        if info is None or info.id != topic.output_id:
            what = "was deleted" if info is None else f"was recreated (its id was {topic.output_id}, now {info.id})"
            raise OutputError(
                f"Connector {self._connector.name}: output topic {output} {what}; what was published is gone.",
                PUBLISH_ANEW,
            )

    def _check_settings(self, outputs: Mapping[str, Topic]) -> None:
        """Checks the settings of the outputs, which may have been altered; a warning is logged once.

        Those that are new here, and some of the others in turn: nothing is published meanwhile.
        """
        new = outputs.keys() - self._warned
        others = sorted(outputs.keys() - new)
        after = bisect_right(others, self._checked_last)
        due = (others[after:] + others[:after])[:SETTINGS_AT_ONCE]
        configs = self._admin.topic_configs([*due, *new, *(outputs[name].topic for name in new)])
        for name in (*due, *new):
            output_topic.check(self._connector, name, configs[name])
            if name in new:
                output_topic.warn(self._connector, name, configs[name], configs[outputs[name].topic])
        self._warned |= new
        self._checked_last = due[-1] if due else ""
