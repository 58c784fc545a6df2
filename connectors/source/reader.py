"""Reads ranges of offsets of one connector, each to its end, or asks the brokers why not and raises it.

A range that makes no progress is judged by what the broker states (source_errors.py): the read ends in a gap that is
stated, or in an error, never in fewer records. `bounded_reader.py` has the other policy, for several connectors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

import pyarrow as pa
import structlog
from confluent_kafka import Message
from msgspec import Struct

from compactor.failpoints import hit
from compactor.model.record import TopicPartition
from connectors.chain.task_growth import TaskGrowth
from connectors.clock import SYSTEM_CLOCK
from connectors.errors import UnreachableError
from connectors.kafka import admin
from connectors.kafka.admin import Admin
from connectors.kafka.broker_text import broker_text
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.consumers import AssignedConsumer, borrowed
from connectors.source import source_errors
from connectors.source.arrow_records import bounded, range_rows, with_range
from connectors.source.assignment import NEVER, EarlyEnd
from connectors.source.options import SourceOptions
from connectors.source.plan import SourceRanges, SourceTopic
from connectors.source.range_cursors import IdleTime, RangeCursor, RangeCursors, nothing_left
from connectors.source.source_errors import FetchError, PartitionState, RangeOutcome, outcome_of
from connectors.source.topics import NoAnswerError, SourceTopics

_AGAIN_MS: Final = 200
"""The pause before brokers that did not answer are asked again, or a partition in error is assigned again."""
_STRICT_POLL_S: Final = 0.05
_FIRST_CHUNK: Final = 1_000
"""Messages of the first poll, until the size of records is known."""
_LARGEST_CHUNK: Final = 20_000
"""Messages of one poll; more only take room, as each batch of Arrow has its fixed costs paid by then."""
_AT_ONCE: Final = 250_000
"""Offsets of ranges from which on messages are taken at once, which takes a new consumer. It spares 0.35 µs a record:
of so many as much as new connections may take."""
_log = structlog.get_logger()


class ReadParts(Struct, frozen=True):
    """What a strict read uses to borrow a consumer and to ask about topics; a test gives others."""

    borrowed: Callable[[ClientSettings, float], AbstractContextManager[AssignedConsumer]] = borrowed
    topics: Callable[[str, Admin], SourceTopics] = SourceTopics
    nothing_left: Callable[[ClientSettings, Sequence[RangeCursor]], Collection[TopicPartition]] = nothing_left
    # Of how many offsets on messages are taken at once; None: never.
    at_once: int | None = _AT_ONCE


def read(
    ranges: SourceRanges,
    options: SourceOptions,
    stopped: Callable[[], bool] = lambda: False,
    early_end: EarlyEnd = NEVER,
    growth: TaskGrowth | None = None,
    parts: ReadParts | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Reads the records of `ranges` as batches of `SOURCE`, each partition's in order, and a row per range.

    Who uses it closes it (`contextlib.closing`): an error of theirs would keep it, and its consumer, for as long as the
    error is kept. Once `early_end` is due or `growth` is full, a range is stated as far as it was used, or not at all.
    Once `stopped` returns True it ends with PublishInterruptedError. Raises DataLossError, SourceChangedError,
    UnreachableError, or ConnectorError if reading is refused or a batch is damaged.
    """
    if not ranges:
        return
    request_s = min(options.timeouts.request, early_end.idle_s)
    parts = parts or ReadParts()
    with parts.borrowed(options.clients, request_s) as consumer:
        yield from StrictRead(ranges, options, consumer, stopped, early_end, parts, growth).batches()


class StrictRead:
    """Reads ranges of one connector, once."""

    def __init__(
        self,
        ranges: SourceRanges,
        options: SourceOptions,
        consumer: AssignedConsumer,
        stopped: Callable[[], bool],
        early_end: EarlyEnd,
        parts: ReadParts | None = None,
        growth: TaskGrowth | None = None,
    ) -> None:
        self._parts = parts or ReadParts()
        # Told of what is read; its writer tells it what is written.
        self._growth = growth or TaskGrowth()
        self._options = options
        self._stopped = stopped
        self._early_end = early_end
        self._cursors = RangeCursors(
            [RangeCursor(each, each.lo, each.lo) for each in ranges], consumer, self._parts.at_once
        )
        # How many messages the next poll is for, by the size of the last ones.
        self._chunk = _FIRST_CHUNK
        self._idle = IdleTime()
        self._topics = self._parts.topics(options.connector, consumer.admin)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Polls until every range is finished, then checks that the topics were the same all the time."""
        cursors = self._cursors
        cursors.assign()
        while active := cursors.active():
            if self._stopped():
                raise source_errors.reading_stopped(self._options.connector)
            if self._growth.is_full or self._early_end.is_due(self._idle.seconds):
                yield from self._end_early(active)
                return
            poll = cursors.poll(active, self._chunk, _STRICT_POLL_S)
            for message in poll.errors:
                self._note_fault(message)
            unused = 0
            if poll.records is not None:
                unused = yield from self._shaped(poll.records)
            self._idle.waited(poll.seconds, moved=cursors.advance(active))
            cursors.put_back(poll, unused)
            yield from self._finish([cursor for cursor in active if cursor.finished])
            if self._idle.should_look(self._options.timeouts.look) and (stuck := cursors.active()):
                yield from self._look(stuck)
        self._verify()

    def _end_early(self, active: list[RangeCursor]) -> list[pa.RecordBatch]:
        """Ends the ranges that are not finished at their position; returns the rows of those that were read in part.

        First it checks the topics, as at the end of all: if brokers that have made no progress do not answer that
        either, nothing may be stated, and UnreachableError is raised at once.
        """
        self._verify(patient=self._idle.seconds < self._early_end.idle_s)
        return self._finish([cursor for cursor in active if cursor.position > cursor.start])

    def _shaped(self, records: pa.RecordBatch) -> Generator[pa.RecordBatch, None, int]:
        """Cuts the records to size, and sizes the next poll by their bytes.

        Returns how many of the last were not used, as `growth` was full by then.
        """
        self._growth.read += records.nbytes
        limit = self._options.limits.batch_bytes
        self._chunk = max(1, min(_LARGEST_CHUNK, limit * len(records) // max(1, records.nbytes), self._chunk * 10))
        left = len(records)
        for part in bounded(records, limit):
            yield with_range(part)
            left -= len(part)
            if self._growth.is_full:
                return left + self._growth.unused
        return 0

    def _finish(self, cursors: list[RangeCursor]) -> list[pa.RecordBatch]:
        """Reads no more of `cursors`; returns their rows."""
        self._cursors.pause(cursors)
        for _ in cursors:
            hit("source.read")
        return [range_rows(cursor.read for cursor in cursors)] if cursors else []

    def _note_fault(self, message: Message) -> None:
        """Handles an error in place of a record: raises it, asks for a look, or keeps its text for a later error."""
        error = message.error()
        assert error is not None
        tp = TopicPartition(message.topic() or "", message.partition() or 0)
        position = next((cursor.position for cursor in self._cursors.every if cursor.tp == tp), -1)
        self._idle.reason = broker_text(error)
        fault = source_errors.classify(error.name())
        if fault is FetchError.REFUSED:
            raise source_errors.refused(self._options.connector, tp, position, broker_text(error))
        if fault is FetchError.DAMAGED:
            raise source_errors.damaged(self._options.connector, tp, position, broker_text(error))
        self._idle.doubt |= fault is FetchError.LOOK

    def _look(self, stuck: list[RangeCursor]) -> list[pa.RecordBatch]:
        """Asks the brokers about the ranges that make no progress; returns the rows of those that end in a gap."""
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        doubt = self._idle.look()
        states = self._ask(stuck)
        rows = [row for cursor in stuck for row in self._settle(cursor, states.get(cursor.tp))]
        rows += self._finish_empty(stuck, states)
        if doubt:
            SYSTEM_CLOCK.sleep_ms(_AGAIN_MS)  # a partition in error is not fetched any more until it is assigned again
        self._idle.waited((SYSTEM_CLOCK.monotonic_ms() - began_ms) / 1000, moved=bool(rows))
        if self._idle.seconds >= self._options.timeouts.timeout:
            raise self._give_up(stuck[0])
        if doubt or rows or any(cursor.finished for cursor in stuck):
            self._cursors.assign()
        return rows

    def _ask(self, cursors: list[RangeCursor]) -> dict[TopicPartition, PartitionState]:
        """Returns the state of each partition; none if the broker does not answer."""
        try:
            topics = self._topics.named(cursor.part.topic for cursor in cursors)
            known = [cursor.tp for cursor in cursors if cursor.part.topic in topics]
            log_starts, log_ends = self._topics.log_starts(known).offsets, self._topics.log_ends(known).offsets
        except NoAnswerError as error:
            self._idle.reason = str(error)
            return {}
        return {
            cursor.tp: PartitionState(id_of(topics, cursor), log_starts.get(cursor.tp), log_ends.get(cursor.tp))
            for cursor in cursors
        }

    def _settle(self, cursor: RangeCursor, state: PartitionState | None) -> list[pa.RecordBatch]:
        """Does what the state of a range's partition asks for: nothing, an error, or with on.data.loss=skip a gap."""
        if state is None:
            return []
        name, part = self._options.connector, cursor.part
        outcome = outcome_of(part.topic_id, cursor.position, part.hi, state)
        if outcome is RangeOutcome.WAIT or self._may_come_back(cursor, outcome):
            return []
        if outcome is RangeOutcome.RECREATED:
            raise source_errors.recreated(name, part.topic, part.topic_id, state.topic_id or "")
        if outcome is RangeOutcome.TRUNCATED:
            raise source_errors.truncated(name, cursor.tp, part.hi, state.log_end or 0)
        if not self._options.skip_lost:
            raise source_errors.missing(name, cursor.tp, cursor.position, part.hi, state)
        resume = part.hi if state.log_start is None else state.log_start
        log = _log.bind(connector=name, topic=part.topic, partition=part.partition)
        log.warning("source records are lost", offset=cursor.position, log_start=resume)
        rows = cursor.skip_to(resume)
        return [*rows, range_rows([cursor.read])] if cursor.finished else rows

    def _may_come_back(self, cursor: RangeCursor, outcome: RangeOutcome) -> bool:
        """Returns whether the topic is unknown, but not for long enough to be gone."""
        if outcome is not RangeOutcome.DELETED:
            cursor.absent_since_ms = None
            return False
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        cursor.absent_since_ms = now_ms if cursor.absent_since_ms is None else cursor.absent_since_ms
        return now_ms - cursor.absent_since_ms < admin.GONE_AFTER_MS

    def _finish_empty(
        self, stuck: list[RangeCursor], states: dict[TopicPartition, PartitionState]
    ) -> list[pa.RecordBatch]:
        """Finishes the ranges of which the rest exists but holds no record to deliver; returns their rows."""
        if self._idle.seconds < 2 * self._options.timeouts.look:
            return []
        readable = [cursor for cursor in stuck if not cursor.finished and _is_readable(cursor, states.get(cursor.tp))]
        empty = self._parts.nothing_left(self._options.clients, readable)
        passed = [cursor for cursor in readable if cursor.tp in empty]
        for cursor in passed:
            cursor.position = cursor.part.hi
        return self._finish(passed)

    def _give_up(self, cursor: RangeCursor) -> UnreachableError:
        name, reason = self._options.connector, self._idle.reason
        return source_errors.unreachable(name, cursor.tp, cursor.position, self._idle.seconds, reason)

    def _verify(self, *, patient: bool = True) -> None:
        """Raises SourceChangedError if a topic was recreated while it was read: an id is never used again.

        Brokers that do not answer are asked again for a while, if it is `patient`. Raises UnreachableError.
        """
        cursors = self._cursors.every
        timeout_s, answer = self._options.timeouts.timeout if patient else 0.0, None
        self._idle.waited(0.0, moved=patient)
        while answer is None:
            began_ms = SYSTEM_CLOCK.monotonic_ms()
            try:
                answer = self._topics.named({cursor.part.topic for cursor in cursors})
            except NoAnswerError as error:
                if self._stopped():
                    raise source_errors.reading_stopped(self._options.connector) from None
                self._idle.reason = str(error)
                if patient:
                    SYSTEM_CLOCK.sleep_ms(_AGAIN_MS)
                    self._idle.waited((SYSTEM_CLOCK.monotonic_ms() - began_ms) / 1000, moved=False)
                if self._idle.seconds >= timeout_s:
                    raise self._give_up(cursors[0]) from None
        for cursor in cursors:
            ours, theirs = cursor.part.topic_id, id_of(answer, cursor)
            if theirs not in (None, ours):
                raise source_errors.recreated(self._options.connector, cursor.part.topic, ours, theirs or "")


def id_of(topics: dict[str, SourceTopic], cursor: RangeCursor) -> str | None:
    """Returns the id that the brokers state for a range's topic; None if they know no such topic."""
    topic = topics.get(cursor.part.topic)
    return topic.id if topic else None


def _is_readable(cursor: RangeCursor, state: PartitionState | None) -> bool:
    """Returns whether the broker states that the remaining offsets of the range can be read."""
    if state is None or state.log_start is None or state.log_end is None:
        return False
    return outcome_of(cursor.part.topic_id, cursor.position, cursor.part.hi, state) is RangeOutcome.WAIT
