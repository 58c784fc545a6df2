"""Follows one connector's topics and their ends, and decides where its next portion of a micro-batch ends.

It keeps no position: every answer follows from the position that it is given and from what the brokers say.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec
import structlog

from compactor.model.record import TopicPartition
from connectors.errors import CHECK_BROKERS, SourceChangedError, UnreachableError
from connectors.kafka import admin
from connectors.kafka.retry import call_again
from connectors.source import plan, source_errors
from connectors.source.options import SourceOptions
from connectors.source.plan import Offsets, SourceTopic, TopicOffsets
from connectors.source.source_topics import NoAnswerError, PartitionOffsets, SourceTopics, ask_again_s

_RETRY_S: Final = 0.5
SAID_AGAIN_S: Final = 30.0
"""How long (s) a reason why brokers do not answer is not logged again, as they are asked several times a second."""
_CALM_S: Final = 0.5
"""Above the time (s) between two questions, so that one answer among failures ends no outage."""
_NUMBER: Final = re.compile(r"\d+")
_Found = TypeVar("_Found")
_log = structlog.get_logger()


class _Pinned(msgspec.Struct, frozen=True):
    """The brokers' answers at the time when the ends were pinned."""

    topics: dict[str, SourceTopic]
    log_starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]


class Planner:
    """Decides the ends of portions. `clock` returns monotonic seconds, `sleep` waits seconds."""

    def __init__(
        self,
        options: SourceOptions,
        source: SourceTopics,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._source = source
        self._clock = clock
        self._sleep = sleep
        self._topics: dict[str, SourceTopic] | None = None
        self._topics_until = float("-inf")
        self._listed: tuple[Offsets | None, object, list[TopicPartition]] = None, None, []
        self._failing_since: float | None = None
        """Since when (s) not every question was answered in full; None if the last one was."""
        self._said: dict[str, float] = {}
        self._answering_since: float | None = None
        """Since when (s) every question was answered; None while the last one was not."""
        self._pinned: _Pinned | None = None
        self._missing: frozenset[str] = frozenset()
        self._recreated: frozenset[str] = frozenset()
        self._closed = False
        """Whether its connector reads no more, set by `close` from any thread."""

    @property
    def silent_s(self) -> float:
        """For how long (s) questions about the source were not answered in full; 0 if the last one was."""
        since = self._failing_since
        return 0.0 if since is None else self._clock() - since

    def close(self) -> None:
        """Has failures count no more: the client that a question is under way with may be closed meanwhile."""
        self._closed = True

    def pin(self) -> None:
        """Pins the source's end to its present one. Raises UnreachableError after the time for retries."""
        until = self._clock() + min(admin.GONE_AFTER_S, self._options.timeouts.timeout / 2)
        self._pinned = self._until_answered(lambda: self._pin(until))

    def initial(self) -> dict[str, TopicOffsets]:
        """Returns where reading begins: the starts of known topics, the log starts of others.

        Raises SourceChangedError where a known topic was recreated, UnreachableError after the time for retries.
        """
        return self._until_answered(self._initial)

    def latest(self, start: Offsets, limit: int | None) -> Offsets:
        """Returns where a portion from `start` of at most `limit` offsets ends; `start` itself when nothing is new.

        Brokers that do not answer are nothing new until the time for retries is over, then UnreachableError. Raises
        SourceChangedError.
        """
        try:
            end = self._latest(start, limit)
        except NoAnswerError as error:
            self._note_failure(str(error))
            return start
        return start if end == start else end

    def partitions(self, position: Offsets) -> list[TopicPartition]:
        """Returns the partitions of `position` whose ends it is going to ask for: those of topics that are not gone.

        The same list as long as neither the position nor the topics are other objects: idle connectors ask often.
        """
        topics = self._topics
        before, known, listed = self._listed
        if position is not before or topics is not known:
            names = position.keys() if topics is None else position.keys() & topics.keys()
            listed = [TopicPartition(name, number) for name in sorted(names) for number in position[name].partitions]
            self._listed = position, topics, listed
        return listed

    def _initial(self) -> dict[str, TopicOffsets]:
        topics, log_starts = (self._pinned.topics, self._pinned.log_starts) if self._pinned else (self._known(), None)
        starts = self._options.starts
        topics = self._not_recreated(starts, topics)
        new = {name: topics[name] for name in topics.keys() - starts.keys()}
        if log_starts is None:
            log_starts = _complete(self._source.log_starts(_partitions(new)))
        return {**starts, **plan.introduce(new, topics, log_starts)}

    def _pin(self, until: float) -> _Pinned:
        topics = self._known()
        absent = self._options.starts.keys() - self._options.closed - topics.keys()
        if absent and self._clock() < until:  # a topic that is missing now would not be read at all
            raise NoAnswerError(f"topic {min(absent)} is not known at the moment")
        every = _partitions(topics)
        log_starts = _complete(self._source.log_starts(every))
        return _Pinned(topics, log_starts, _complete(self._source.log_ends(every)))

    def _latest(self, start: Offsets, limit: int | None, *, again: bool = False) -> dict[str, TopicOffsets]:
        topics = self._pinned.topics if self._pinned else self._known()
        topics = self._not_recreated(start, topics)
        ends = self._pinned.ends if self._pinned else self._ask_ends(start, topics)
        try:
            moved = plan.advance(self._options.connector, start, topics, ends, limit)
        except SourceChangedError:
            if self._pinned or again:
                raise
            self._topics = None  # what is known of them may be old: another topic of that name would end there
            return self._latest(start, limit, again=True)
        new = topics.keys() - start.keys()
        return {**moved, **self._introduce(new, topics)} if new else moved

    def _not_recreated(self, start: Offsets, topics: dict[str, SourceTopic]) -> dict[str, SourceTopic]:
        """Removes the topics that have another id than in `start`: they stay where they were, as deleted ones do.

        Step T3 and its repetitions put them into the catalog. Raises SourceChangedError where no topic is left.
        """
        others = plan.recreated(start, topics)
        for name in sorted(others - self._recreated):
            error = source_errors.recreated(self._options.connector, name, start[name].id, topics[name].id)
            if len(others) == len(topics):
                raise error
            connector, reason = self._options.connector, error.message
            _log.warning(
                "source topic is read no more, the others go on", connector=connector, topic=name, reason=reason
            )
        self._recreated = others
        return {name: topic for name, topic in topics.items() if name not in others}

    def _introduce(self, new: set[str], topics: dict[str, SourceTopic]) -> dict[str, TopicOffsets]:
        if self._pinned:
            return plan.introduce(new, topics, self._pinned.log_starts)
        answers = self._source.log_starts(_partitions({name: topics[name] for name in new}))
        found = plan.introduce(new, topics, answers.offsets)
        for name in sorted(found):
            _log.info("source topic found", connector=self._options.connector, topic=name, topic_id=found[name].id)
        return found

    def _ask_ends(self, start: Offsets, topics: dict[str, SourceTopic]) -> dict[TopicPartition, int]:
        answers = self._source.log_ends(plan.known(start, topics))
        if answers.failures:
            # A topic may just have been deleted: the next look at the topics shows it.
            self._topics = None
            self._note_failure(_first(answers))
        else:
            self._failing_since = None
            self._note_answer()
        return answers.offsets

    def _known(self) -> dict[str, SourceTopic]:
        now = self._clock()
        if self._topics is None or now >= self._topics_until:
            self._topics = self._ask_topics()
            self._topics_until = now + ask_again_s(self._options.timeouts.metadata_age, self._clock() - now)
        return self._topics

    def _ask_topics(self) -> dict[str, SourceTopic]:
        selection = self._options.selection
        if selection.pattern is not None:
            return self._source.matching(selection.pattern)
        found = self._source.named(selection.topics)
        missing = frozenset(selection.topics) - found.keys()
        for name in sorted(missing - self._missing):
            _log.warning("source topic does not exist", connector=self._options.connector, topic=name)
        self._missing = missing
        return found

    def _note_answer(self) -> None:
        """Forgets what was said of an outage once it is over for _CALM_S: brokers may answer and fail in turn."""
        now = self._clock()
        self._answering_since = now if self._answering_since is None else self._answering_since
        if now - self._answering_since >= _CALM_S:
            self._said.clear()

    def _note_failure(self, why: str) -> None:
        if self._closed:
            return
        now = self._clock()
        self._answering_since = None
        self._failing_since = now if self._failing_since is None else self._failing_since
        waited = now - self._failing_since
        kind = _NUMBER.sub("#", why)  # a time or an id of a request must not make it another reason
        if now - self._said.get(kind, float("-inf")) >= SAID_AGAIN_S:
            self._said[kind] = now
            _log.warning("source is not answered", connector=self._options.connector, reason=why, seconds=round(waited))
        if waited >= self._options.timeouts.timeout:
            raise self._unreachable(why, waited)

    def _unreachable(self, why: str, seconds: float) -> UnreachableError:
        error = UnreachableError(
            f"Connector {self._options.connector}: the brokers did not tell the source's topics and ends for "
            f"{seconds:.0f} s: {why}.",
            CHECK_BROKERS,
        )
        error.silent_s = seconds
        return error

    def _until_answered(self, ask: Callable[[], _Found]) -> _Found:
        def again(error: BaseException) -> bool:
            if not isinstance(error, NoAnswerError):
                return False
            self._topics = None  # asked for anew, as well
            return True

        began, timeout = self._clock(), self._options.timeouts.timeout
        try:
            return call_again(ask, again, timeout, _RETRY_S, clock=self._clock, sleep=self._sleep)
        except NoAnswerError as error:
            raise self._unreachable(str(error), self._clock() - began) from None


def _partitions(topics: Mapping[str, SourceTopic]) -> list[TopicPartition]:
    return [TopicPartition(name, number) for name, topic in topics.items() for number in range(topic.partitions)]


def _complete(answers: PartitionOffsets) -> dict[TopicPartition, int]:
    if answers.failures:
        raise NoAnswerError(_first(answers))
    return answers.offsets


def _first(answers: PartitionOffsets) -> str:
    key = min(answers.failures)
    return f"{key}: {answers.failures[key]}"
