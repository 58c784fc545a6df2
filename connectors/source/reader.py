"""Reads a split of ranges with one consumer.

A range is finished when the consumer's position has reached its end: the position passes markers, aborted records and
holes, where a last record, an empty poll or an end-of-partition event say nothing. It does not pass what was aborted
right below a transaction that is still open: librdkafka drops records of an aborted transaction, and its position
passes them only with the next marker or record behind them. That nothing else is left there is shown by a consumer that
was just made, with no other assignment: its end-of-partition event comes behind all that it delivers (`nothing_left`).
A range that makes no progress is judged by what the broker states (source_errors.py); it ends in a gap that is stated,
or in an error, never in fewer records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import structlog
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as Partition
from msgspec.structs import replace

from compactor.failpoints import hit
from compactor.model.record import TopicPartition
from connectors.errors import UnreachableError
from connectors.kafka import admin
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.consumers import AssignedConsumer, borrowed
from connectors.source import source_errors
from connectors.source.arrow_records import PartitionSlots, bounded, faulty, range_rows, to_arrow, with_range, within
from connectors.source.assignment import NEVER, EarlyEnd
from connectors.source.collector import uncollected
from connectors.source.options import SourceOptions
from connectors.source.plan import ReadSplit, SourceRange, SourceTopic
from connectors.source.source_errors import FetchError, PartitionState, RangeOutcome, outcome_of
from connectors.source.topics import AdminTopics, NoAnswerError

LOOK_S: Final = 1.0
"""After so long (s) without progress the brokers are asked why."""
_POLL_S: Final = 0.05
_AGAIN_S: Final = 0.2
_FIRST: Final = 1_000
_MOST: Final = 20_000
_EMPTY_S: Final = 3.0
_EMPTY_POLL_S: Final = 0.1
_log = structlog.get_logger()


def read(
    split: ReadSplit,
    options: SourceOptions,
    stopped: Callable[[], bool] = lambda: False,
    early_end: EarlyEnd = NEVER,
) -> Generator[pa.RecordBatch, None, None]:
    """Reads the records of the split's ranges as batches of `SOURCE`, each partition's in order, and a row per range.

    Who uses it closes it (`contextlib.closing`): an error of theirs would keep it, and its consumer, for as long as the
    error is kept. Once `early_end` is due, a range is stated as far as it was read, or not at all. Once `stopped`
    returns True it ends with PublishInterruptedError. Raises DataLossError, SourceChangedError, UnreachableError, or
    ConnectorError if reading is refused or a batch is damaged.
    """
    if not split.ranges:
        return
    request_s = min(options.timeouts.request, early_end.idle_s)
    with borrowed(options.clients, request_s) as consumer:
        yield from _SplitReader(split, options, consumer, stopped, early_end).batches()


class _SplitReader:
    """Reads one split, once."""

    def __init__(
        self,
        split: ReadSplit,
        options: SourceOptions,
        consumer: AssignedConsumer,
        stopped: Callable[[], bool],
        early_end: EarlyEnd,
    ) -> None:
        self._options = options
        self._stopped = stopped
        self._early_end = early_end
        self._consumer = consumer
        self._cursors = [RangeCursor(each, each.lo, each.lo) for each in split.ranges]
        self._slots = PartitionSlots([cursor.key for cursor in self._cursors])
        self._chunk = _FIRST
        self._idle = IdleTime()
        self._topics = AdminTopics(options.connector, consumer.admin)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Polls until every range is finished, then checks that the topics were the same all the time."""
        self._assign()
        while self._active():
            if self._stopped():
                raise source_errors.reading_stopped(self._options.connector)
            if self._early_end.is_due(self._idle.seconds):
                yield from self._end_early()
                return
            records, waited = uncollected(self._poll_records)
            yield from self._shaped(records)
            yield from self._advance(waited)
            if self._idle.should_look():
                yield from self._look()
        self._verify()

    def _end_early(self) -> list[pa.RecordBatch]:
        """Ends the ranges that are not finished where they stand; returns the rows of those of which anything was read.

        First it checks the topics, as at the end of all: where brokers that have made no progress do not answer that
        either, nothing may be stated, and UnreachableError is raised at once.
        """
        gives_up = self._idle.seconds >= self._early_end.idle_s
        self._verify(patient=not gives_up)
        read = [cursor for cursor in self._active() if cursor.position > cursor.start]
        for cursor in read:
            cursor.part = replace(cursor.part, hi=cursor.position)
        return self._finish(read)

    def _active(self) -> list[RangeCursor]:
        return [cursor for cursor in self._cursors if not cursor.finished]

    def _assign(self) -> None:
        self._consumer.assign([cursor.partition for cursor in self._active()])

    def _poll_records(self) -> tuple[pa.RecordBatch | None, float]:
        """Polls once; returns what came of the ranges, and for how long (s) it was waited for."""
        began = time.monotonic()
        messages = self._poll()
        waited = time.monotonic() - began
        return self._records(messages), waited

    def _poll(self) -> list[Message]:
        """Polls once for messages: no more than are still to be read, as waiting for more would be in vain."""
        left = sum(cursor.part.hi - cursor.position for cursor in self._active())
        found = self._consumer.consumer.consume(min(self._chunk, left), _POLL_S)
        odd = faulty(found)
        for number in odd:
            self._fault(found[number])
        return [message for message in found if message.error() is None] if odd else found

    def _records(self, messages: list[Message]) -> pa.RecordBatch | None:
        """Makes one batch of the messages that belong to the ranges, and counts them."""
        if not messages:
            return None
        lows = np.array([cursor.position for cursor in self._cursors], np.int64)
        highs = np.array([cursor.part.hi for cursor in self._cursors], np.int64)
        kept, slots, offsets = within(messages, self._slots.of(messages), lows, highs)
        for cursor, count in zip(self._cursors, np.bincount(slots, minlength=len(self._slots)), strict=True):
            cursor.records += int(count)
        return to_arrow(kept, slots, offsets, self._slots) if kept else None

    def _shaped(self, batch: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
        """Cuts the batch to size, and sizes the next poll by the bytes of these records."""
        if batch is None:
            return
        limit = self._options.limits.batch_bytes
        self._chunk = max(1, min(_MOST, limit * len(batch) // max(1, batch.nbytes), self._chunk * 10))
        for part in bounded(batch, limit):
            yield with_range(part)

    def _advance(self, waited: float) -> list[pa.RecordBatch]:
        """Updates the cursors by the consumer's positions; pauses the ranges that are finished, returns their rows."""
        active = self._active()
        positions = self._consumer.consumer.position([cursor.partition for cursor in active])
        moved = False
        for cursor, found in zip(active, positions, strict=True):
            # Negative (invalid) until something was delivered.
            if found.offset > cursor.position:
                cursor.position, moved = found.offset, True
        self._idle.waited(waited, moved=moved)
        return self._finish([cursor for cursor in active if cursor.finished])

    def _finish(self, finished: list[RangeCursor]) -> list[pa.RecordBatch]:
        if finished:
            self._consumer.pause([Partition(*cursor.key) for cursor in finished])
        for _ in finished:
            hit("source.read")
        return [range_rows(cursor.read for cursor in finished)] if finished else []

    def _fault(self, message: Message) -> None:
        """Handles an error in place of a record: raises it, asks for a look, or keeps its text for a later error."""
        error = message.error()
        assert error is not None
        key = TopicPartition(message.topic() or "", message.partition() or 0)
        position = next((cursor.position for cursor in self._cursors if cursor.key == key), -1)
        self._idle.reason = error.str()
        fault = source_errors.classify(error.name())
        if fault is FetchError.REFUSED:
            raise source_errors.refused(self._options.connector, key, position, error.str())
        if fault is FetchError.DAMAGED:
            raise source_errors.damaged(self._options.connector, key, position, error.str())
        self._idle.doubt |= fault is FetchError.LOOK

    def _look(self) -> list[pa.RecordBatch]:
        """Asks the brokers about the ranges that make no progress; returns the rows of those that end in a gap."""
        began = time.monotonic()
        doubt = self._idle.look()
        stopped = self._active()
        states = self._ask(stopped)
        stated = [row for cursor in stopped for row in self._settle(cursor, states.get(cursor.key))]
        stated += self._pass(stopped, states)
        if doubt:
            # A partition in error is not fetched any more until it is assigned again.
            time.sleep(_AGAIN_S)
        self._idle.waited(time.monotonic() - began, moved=bool(stated))
        self._check_timeout(stopped[0])
        if doubt or stated or any(cursor.finished for cursor in stopped):
            self._assign()
        return stated

    def _ask(self, cursors: list[RangeCursor]) -> dict[TopicPartition, PartitionState]:
        """Returns the state of each partition; none where the broker does not answer."""
        try:
            topics = self._topics.named(cursor.part.topic for cursor in cursors)
            there = [cursor.key for cursor in cursors if cursor.part.topic in topics]
            log_starts, log_ends = self._topics.log_starts(there).offsets, self._topics.log_ends(there).offsets
        except NoAnswerError as error:
            self._idle.reason = str(error)
            return {}
        return {
            cursor.key: PartitionState(_id(topics, cursor), log_starts.get(cursor.key), log_ends.get(cursor.key))
            for cursor in cursors
        }

    def _settle(self, cursor: RangeCursor, state: PartitionState | None) -> list[pa.RecordBatch]:
        """Does what the state of a range's partition asks for: nothing, an error, or with on.data.loss=skip a gap."""
        name, part = self._options.connector, cursor.part
        outcome = RangeOutcome.WAIT if state is None else outcome_of(part.topic_id, cursor.position, part.hi, state)
        if state is None or self._may_come_back(cursor, outcome) or outcome is RangeOutcome.WAIT:
            return []
        if outcome is RangeOutcome.RECREATED:
            raise source_errors.recreated(name, part.topic, part.topic_id, state.topic_id or "")
        if outcome is RangeOutcome.TRUNCATED:
            raise source_errors.truncated(name, cursor.key, part.hi, state.log_end or 0)
        if not self._options.skip_lost:
            raise source_errors.missing(name, cursor.key, cursor.position, part.hi, state)
        return self._skip(cursor, part.hi if state.log_start is None else state.log_start)

    def _pass(self, stopped: list[RangeCursor], states: dict[TopicPartition, PartitionState]) -> list[pa.RecordBatch]:
        """Finishes the ranges whose remaining offsets exist but hold no record to deliver; returns their rows."""
        if self._idle.seconds < 2 * LOOK_S:
            return []
        there = [cursor for cursor in stopped if not cursor.finished and _is_there(cursor, states.get(cursor.key))]
        empty = nothing_left(self._options.clients, there)
        passed = [cursor for cursor in there if cursor.key in empty]
        for cursor in passed:
            cursor.position = cursor.part.hi
        return self._finish(passed)

    def _may_come_back(self, cursor: RangeCursor, outcome: RangeOutcome) -> bool:
        """Returns whether the topic is unknown, but not for long enough to be gone."""
        if outcome is not RangeOutcome.DELETED:
            cursor.absent_since = None
            return False
        now = time.monotonic()
        cursor.absent_since = now if cursor.absent_since is None else cursor.absent_since
        return now - cursor.absent_since < admin.GONE_AFTER_S

    def _skip(self, cursor: RangeCursor, resume: int) -> list[pa.RecordBatch]:
        log = _log.bind(connector=self._options.connector, topic=cursor.part.topic, partition=cursor.part.partition)
        log.warning("source records are lost", offset=cursor.position, log_start=resume)
        stated = cursor.skip_to(resume)
        return [*stated, range_rows([cursor.read])] if cursor.finished else stated

    def _check_timeout(self, cursor: RangeCursor) -> None:
        if self._idle.seconds >= self._options.timeouts.timeout:
            raise self._unreachable(cursor)

    def _unreachable(self, cursor: RangeCursor) -> UnreachableError:
        name, reason = self._options.connector, self._idle.reason
        return source_errors.unreachable(name, cursor.key, cursor.position, self._idle.seconds, reason)

    def _verify(self, *, patient: bool = True) -> None:
        """Raises SourceChangedError where a topic was recreated while it was read: an id is never used again.

        Brokers that do not answer are asked again for a while, if it is `patient`. Raises UnreachableError.
        """
        topics = self._topics_now(patient=patient)
        for cursor in self._cursors:
            found = _id(topics, cursor)
            if found not in (None, cursor.part.topic_id):
                raise source_errors.recreated(
                    self._options.connector, cursor.part.topic, cursor.part.topic_id, found or ""
                )

    def _topics_now(self, *, patient: bool) -> dict[str, SourceTopic]:
        if patient:
            self._idle.waited(0.0, moved=True)
        while True:
            began = time.monotonic()
            try:
                return self._topics.named({cursor.part.topic for cursor in self._cursors})
            except NoAnswerError as error:
                if self._stopped():
                    raise source_errors.reading_stopped(self._options.connector) from None
                self._idle.reason = str(error)
                if not patient:
                    raise self._unreachable(self._cursors[0]) from None
                time.sleep(_AGAIN_S)
                self._idle.waited(time.monotonic() - began, moved=False)
                self._check_timeout(self._cursors[0])


def _id(topics: dict[str, SourceTopic], cursor: RangeCursor) -> str | None:
    found = topics.get(cursor.part.topic)
    return found.id if found else None


def _is_there(cursor: RangeCursor, state: PartitionState | None) -> bool:
    """Returns whether the broker states that the remaining offsets of the range can be read."""
    if state is None or state.log_start is None or state.log_end is None:
        return False
    return outcome_of(cursor.part.topic_id, cursor.position, cursor.part.hi, state) is RangeOutcome.WAIT


@dataclass
class RangeCursor:
    """One range being read. `part` is the range that its next row will state; it was read from `start` on."""

    part: SourceRange
    start: int
    position: int
    records: int = 0
    absent_since: float | None = None
    """Since when its topic is unknown to the brokers, in monotonic seconds; None while it is known."""

    @property
    def finished(self) -> bool:
        """Whether the position has reached the end."""
        return self.position >= self.part.hi

    @property
    def key(self) -> TopicPartition:
        """The partition of the range."""
        return self.part.topic_partition

    @property
    def partition(self) -> Partition:
        """The partition and offset at which a consumer goes on."""
        return Partition(self.part.topic, self.part.partition, self.position)

    @property
    def read(self) -> tuple[SourceRange, int, int]:
        """What its row states: the range, where reading it began, how many records it held."""
        return self.part, self.start, self.records

    def skip_to(self, offset: int) -> list[pa.RecordBatch]:
        """Moves the cursor to `offset`, at most to the end; the offsets between are a gap at the start of the next row.

        Returns the row of what was read before the gap, if anything was.
        """
        stated = []
        if self.position > self.start:
            stated = [range_rows([(replace(self.part, hi=self.position), self.start, self.records)])]
            self.part = replace(self.part, lo=self.position)
        self.start = self.position = min(offset, self.part.hi)
        self.records = 0
        return stated


@dataclass
class IdleTime:
    """Counts the seconds of waiting without progress; the time that records take to be processed does not count."""

    seconds: float = 0.0
    looked: float = 0.0
    doubt: bool = False
    reason: str = ""

    def waited(self, seconds: float, *, moved: bool) -> None:
        """Counts a poll or a look of `seconds`; `moved` says whether any range got further by it."""
        if moved:
            self.seconds = self.looked = 0.0
            self.reason = ""
        else:
            self.seconds += seconds

    def should_look(self) -> bool:
        """Returns whether it is time to ask the broker what is wrong."""
        return self.doubt or self.seconds - self.looked >= LOOK_S

    def look(self) -> bool:
        """Begins a look; returns whether an error of the consumer asked for it."""
        self.looked = self.seconds
        doubt, self.doubt = self.doubt, False
        return doubt


def nothing_left(clients: ClientSettings, cursors: Iterable[RangeCursor]) -> frozenset[TopicPartition]:
    """Returns the partitions of `cursors` that have no committed record between position and end.

    Only those for which a read_committed consumer shows that within _EMPTY_S; of the others nothing is known.
    """
    waiting = {cursor.key: cursor for cursor in cursors}
    found: set[TopicPartition] = set()
    if not waiting:
        return frozenset()
    settings = {**clients.consumer(), "enable.partition.eof": True, "queued.min.messages": 1}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([cursor.partition for cursor in waiting.values()])
        until = time.monotonic() + _EMPTY_S
        while waiting and time.monotonic() < until:
            for message in consumer.consume(len(waiting), _EMPTY_POLL_S):
                cursor = waiting.pop(TopicPartition(message.topic() or "", message.partition() or 0), None)
                if cursor is not None and _is_behind(message, cursor.part.hi):
                    found.add(cursor.key)
    return frozenset(found)


def _is_behind(message: Message, end: int) -> bool:
    """Returns whether the first thing delivered is the end of the partition, or a record, at `end` or above.

    After any other error nothing is shown: librdkafka goes on behind a batch that it cannot read.
    """
    error, offset = message.error(), message.offset()
    return (error is None or error.code() == KafkaError._PARTITION_EOF) and offset is not None and offset >= end
