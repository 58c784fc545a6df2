"""Follows one connector's topics and their ends, and decides the end of its next portion.

It keeps no position: every answer follows from the position that it is given and from what the brokers say.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec
import structlog

from compactor.model.record import TopicPartition
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.errors import CHECK_BROKERS, SourceChangedError, UnreachableError
from connectors.kafka import admin
from connectors.progress.observer import Interval
from connectors.source import plan, source_errors
from connectors.source.options import SourceOptions
from connectors.source.plan import Offsets, SourceTopic, TopicOffsets
from connectors.source.topics import NoAnswerError, SourceTopics, ask_again_ms

SAID_AGAIN_MS: Final = 30_000
"""How long a reason why brokers do not answer is not logged again, as they are asked several times a second."""
_RETRY_MS: Final = 500
_CALM_MS: Final = 500
"""Above the time between two questions, so that one answer among failures ends no outage."""
_NUMBER: Final = re.compile(r"\d+")
_Answer = TypeVar("_Answer")
_log = structlog.get_logger()


class _Pinned(msgspec.Struct, frozen=True):
    """The brokers' answers at the time when the ends were pinned."""

    topics: dict[str, SourceTopic]
    log_starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]


class Planner:
    """Decides the ends of portions. Once `stop` is set, it waits for no answer any more."""

    def __init__(
        self,
        options: SourceOptions,
        source: SourceTopics,
        clock: Clock = SYSTEM_CLOCK,
        stop: threading.Event | None = None,
    ) -> None:
        self._options = options
        self._source = source
        self._clock = clock
        self._stop = stop or threading.Event()
        self._timeout_ms = round(options.timeouts.timeout * 1000)
        # The last answer about topics, asked for again at `_topics_until_ms`, or at once if it is None.
        self._topics: dict[str, SourceTopic] | None = None
        self._topics_until_ms = 0
        # What `partitions` returned last: for this position, these topics and those left out, the list.
        self._listed: tuple[Offsets | None, object, object, list[TopicPartition]] = None, None, None, []
        # Since when (monotonic ms) not every question was answered in full; None if the last one was.
        self._failing_since_ms: int | None = None
        # Since when (monotonic ms) every question was answered; None while the last one was not.
        self._answering_since_ms: int | None = None
        # When each reason of an outage is logged again.
        self._said = Interval(clock, SAID_AGAIN_MS)
        self._pinned: _Pinned | None = None
        # Topics that were logged as missing, and as recreated: each is logged once.
        self._missing: frozenset[str] = frozenset()
        self._recreated: frozenset[str] = frozenset()
        # Whether its connector reads no more, set by `close` from any thread.
        self._closed = False
        # Topics that the connector has set aside since it began, set by `leave_out` from any thread.
        self._left_out: frozenset[str] = frozenset()

    @property
    def silent_ms(self) -> int:
        """For how long questions about the source were not answered in full; 0 if the last one was."""
        since_ms = self._failing_since_ms
        return 0 if since_ms is None else self._clock.monotonic_ms() - since_ms

    def close(self) -> None:
        """Has failures count no more: the client that a question is under way with may be closed meanwhile."""
        self._closed = True

    def leave_out(self, topics: frozenset[str]) -> None:
        """Has nothing more of `topics` planned: they stay at their offsets, as deleted ones do."""
        self._left_out = topics

    def pin(self) -> None:
        """Pins the source's end to its present one. Raises UnreachableError after the time for retries."""
        until_ms = self._clock.monotonic_ms() + min(admin.GONE_AFTER_MS, self._timeout_ms // 2)
        self._pinned = self._until_answered(lambda: self._pin(until_ms))

    @property
    def pinned_ends(self) -> Mapping[TopicPartition, int] | None:
        """The ends that were pinned, by partition; None if none were."""
        return None if self._pinned is None else self._pinned.ends

    def initial(self) -> dict[str, TopicOffsets]:
        """Returns the first position: the starts of known topics, the log starts of others.

        Raises SourceChangedError if a known topic was recreated, UnreachableError after the time for retries.
        """
        return self._until_answered(self._initial)

    def latest(self, start: Offsets, limit: int | None) -> Offsets:
        """Returns the end of a portion from `start` of at most `limit` offsets; `start` itself if nothing is new.

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
        """Returns the partitions of `position` that it is going to ask about: those of topics that are not gone.

        The same list as long as neither the position nor the topics are other objects: idle connectors ask often.
        """
        topics, left_out = self._topics, self._left_out
        before, known, without, listed = self._listed
        if position is not before or topics is not known or left_out is not without:
            names = position.keys() if topics is None else position.keys() & topics.keys()
            read = sorted(names - left_out)
            listed = [TopicPartition(name, number) for name in read for number in position[name].partitions]
            self._listed = position, topics, left_out, listed
        return listed

    def _initial(self) -> dict[str, TopicOffsets]:
        starts, pinned = self._options.starts, self._pinned
        topics = self._not_recreated(starts, pinned.topics if pinned else self._known())
        new = {name: topics[name] for name in topics.keys() - starts.keys()}
        log_starts = pinned.log_starts if pinned else self._source.log_starts(_partitions(new)).complete()
        return {**starts, **plan.introduce(new, topics, log_starts)}

    def _pin(self, until_ms: int) -> _Pinned:
        topics = self._known()
        absent = self._options.starts.keys() - self._options.closed - topics.keys()
        if absent and self._clock.monotonic_ms() < until_ms:  # a topic that is missing now would not be read at all
            raise NoAnswerError(f"topic {min(absent)} is not known at the moment")
        every = _partitions(topics)
        return _Pinned(topics, self._source.log_starts(every).complete(), self._source.log_ends(every).complete())

    def _latest(self, start: Offsets, limit: int | None, *, again: bool = False) -> dict[str, TopicOffsets]:
        known = self._pinned.topics if self._pinned else self._known()
        read = {name: topic for name, topic in known.items() if name not in self._left_out}
        topics = self._not_recreated(start, read)
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
        """Removes the topics that have another id than in `start`: they stay at their offsets, as deleted ones do.

        Step T3 and its repetitions put them into the catalog. Raises SourceChangedError if no topic is left.
        """
        connector, recreated = self._options.connector, plan.recreated(start, topics)
        for name in sorted(recreated - self._recreated):
            error = source_errors.recreated(connector, name, start[name].id, topics[name].id)
            if len(recreated) == len(topics):
                raise error
            event = "source topic is read no more, the others go on"
            _log.warning(event, connector=connector, topic=name, reason=error.message)
        self._recreated = recreated
        return {name: topic for name, topic in topics.items() if name not in recreated}

    def _introduce(self, new: set[str], topics: dict[str, SourceTopic]) -> dict[str, TopicOffsets]:
        if self._pinned:
            return plan.introduce(new, topics, self._pinned.log_starts)
        log_starts = self._source.log_starts(_partitions({name: topics[name] for name in new})).offsets
        introduced = plan.introduce(new, topics, log_starts)
        for name, offsets in sorted(introduced.items()):
            _log.info("source topic found", connector=self._options.connector, topic=name, topic_id=offsets.id)
        return introduced

    def _ask_ends(self, start: Offsets, topics: dict[str, SourceTopic]) -> dict[TopicPartition, int]:
        answers = self._source.log_ends(plan.known(start, topics))
        if answers.failure:
            self._topics = None  # a topic may just have been deleted: the next look at the topics shows it
            self._note_failure(answers.failure)
        else:
            self._note_answer()
        return answers.offsets

    def _known(self) -> dict[str, SourceTopic]:
        """Returns the topics that are read, as the brokers have them, or had them a short time ago."""
        now_ms, connector, selection = self._clock.monotonic_ms(), self._options.connector, self._options.selection
        if self._topics is not None and now_ms < self._topics_until_ms:
            return self._topics
        if selection.pattern is not None:
            self._topics = self._source.matching(selection.pattern)
        else:
            self._topics = self._source.named(selection.topics)
            missing = frozenset(selection.topics) - self._topics.keys()
            for name in sorted(missing - self._missing):
                _log.warning("source topic does not exist", connector=connector, topic=name)
            self._missing = missing
        least_ms = round(self._options.timeouts.metadata_age * 1000)
        self._topics_until_ms = now_ms + ask_again_ms(least_ms, self._clock.monotonic_ms() - now_ms)
        return self._topics

    def _note_answer(self) -> None:
        """Ends a silence; forgets what was said of it after _CALM_MS, as brokers may answer and fail in turn."""
        now_ms, self._failing_since_ms = self._clock.monotonic_ms(), None
        self._answering_since_ms = now_ms if self._answering_since_ms is None else self._answering_since_ms
        if now_ms - self._answering_since_ms >= _CALM_MS:
            self._said = Interval(self._clock, SAID_AGAIN_MS)

    def _note_failure(self, why: str) -> None:
        if self._closed:
            return
        now_ms = self._clock.monotonic_ms()
        self._answering_since_ms = None
        self._failing_since_ms = now_ms if self._failing_since_ms is None else self._failing_since_ms
        waited_ms = now_ms - self._failing_since_ms
        kind = _NUMBER.sub("#", why)  # a time or an id of a request must not make it another reason
        if self._said.ready(kind):
            seconds = round(waited_ms / 1000)
            _log.warning("source is not answered", connector=self._options.connector, reason=why, seconds=seconds)
        if waited_ms >= self._timeout_ms:
            raise self._unreachable(why, waited_ms)

    def _unreachable(self, why: str, waited_ms: int) -> UnreachableError:
        error = UnreachableError(
            f"Connector {self._options.connector}: the brokers did not tell the source's topics and ends for "
            f"{waited_ms / 1000:.0f} s: {why}.",
            CHECK_BROKERS,
        )
        error.silent_ms = waited_ms
        return error

    def _until_answered(self, ask: Callable[[], _Answer]) -> _Answer:
        began_ms = self._clock.monotonic_ms()
        while True:
            try:
                return ask()
            except NoAnswerError as error:
                self._topics = None  # asked for again, as well
                waited_ms = self._clock.monotonic_ms() - began_ms
                if waited_ms >= self._timeout_ms:
                    raise self._unreachable(str(error), waited_ms) from None
            if self._clock.wait_ms(_RETRY_MS, self._stop):
                raise source_errors.reading_stopped(self._options.connector)


def _partitions(topics: Mapping[str, SourceTopic]) -> list[TopicPartition]:
    return [TopicPartition(name, number) for name, topic in topics.items() for number in range(topic.partitions)]
