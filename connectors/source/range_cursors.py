"""How far each of several ranges is read by one consumer: poll, keep what belongs to a range, advance, pause.

A range is finished when the consumer's position has reached its end: the position passes markers, aborted records and
holes, of which a last record, an empty poll or an end-of-partition event say nothing. It does not pass what was aborted
right below a transaction that is still open: librdkafka drops records of an aborted transaction, and its position
passes them only with the next marker or record after them. That nothing else is left there is shown by a consumer that
was just made, with no other assignment: its end-of-partition event comes after all that it delivers (`nothing_left`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as Partition
from msgspec.structs import replace

from compactor.errors import DEFECT, IngestError
from compactor.model.record import TopicPartition
from connectors.clock import SYSTEM_CLOCK, Deadline
from connectors.data.collector import uncollected
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.consumers import AssignedConsumer
from connectors.kafka.message_queue import MessageQueue
from connectors.source.arrow_records import Longs, PartitionSlots, faulty, range_rows, to_arrow, within
from connectors.source.held_records import to_arrow as to_arrow_at_once
from connectors.source.plan import SourceRange

Result = TypeVar("Result")
Stated = tuple[SourceRange, int, int]
"""What a row of `range_rows` states: the range that was read, the first offset asked for, the records."""

EMPTY_S: Final = 3.0
"""How long (s) a new consumer has to show that nothing is left: time for a connection, a fetch and its long poll."""
_EMPTY_POLL_S: Final = 0.1
_OTHERS: Final = 100
"""How many errors that are no partition's are taken at a time: more of them say nothing new."""


@dataclass
class RangeCursor:
    """One range being read. `part` is what its next row will state; it was read from `start` on, up to `position`."""

    part: SourceRange
    start: int
    position: int
    records: int = 0
    # The number of its portion, if one consumer reads several.
    owner: int = 0
    # Its portion is left to another read: it is read no more, and nothing of it counts.
    dropped: bool = False
    # Since when (monotonic ms) its topic is unknown to the brokers; None while it is known.
    absent_since_ms: int | None = None

    @property
    def finished(self) -> bool:
        """Whether the position has reached the end."""
        return self.position >= self.part.hi

    @property
    def tp(self) -> TopicPartition:
        """The partition of the range."""
        return self.part.topic_partition

    @property
    def partition(self) -> Partition:
        """The partition and offset at which a consumer goes on."""
        return Partition(self.part.topic, self.part.partition, self.position)

    @property
    def read(self) -> Stated:
        """What its row states: the range as far as it was read."""
        return replace(self.part, hi=self.position), self.start, self.records

    def skip_to(self, offset: int) -> list[pa.RecordBatch]:
        """Moves the cursor to `offset`, at most to the end; the offsets between are a gap at the start of the next row.

        Returns the row of what was read before the gap, if anything was.
        """
        rows = []
        if self.position > self.start:
            rows = [range_rows([self.read])]
            self.part = replace(self.part, lo=self.position)
        self.start = self.position = min(offset, self.part.hi)
        self.records = 0
        return rows


class Poll(NamedTuple):
    """What one poll has brought. `seconds`: how long it was waited for."""

    seconds: float
    # Messages that stand for an error.
    errors: list[Message]
    # The ranges that messages came of, also messages outside the range.
    brought: list[RangeCursor]
    # The records that belong to the ranges (arrow_records.READ), if any.
    records: pa.RecordBatch | None = None
    # The index of each record's cursor.
    slots: Longs | None = None


class RangeCursors:
    """The cursors of all ranges that `consumer` reads; never two of one partition."""

    def __init__(self, cursors: Sequence[RangeCursor], consumer: AssignedConsumer, at_once: int | None = None) -> None:
        self.every = cursors
        self._consumer = consumer
        # Of how many offsets on messages are taken at once (`AssignedConsumer.assign`); None: never.
        self._at_once = at_once
        self._takes_at_once = False
        # The next poll assigns all again, after `advance`: records that have headers are read one by one.
        self._is_to_assign = False
        self._slots = PartitionSlots([cursor.tp for cursor in cursors])

    def active(self) -> list[RangeCursor]:
        """Returns those that are still to be read."""
        return [cursor for cursor in self.every if not (cursor.finished or cursor.dropped)]

    def assign(self) -> None:
        """Has the consumer read the active ranges, each from its position on."""
        self._is_to_assign, active = False, self.active()
        self._takes_at_once = self._at_once is not None and _left(active) >= self._at_once
        self._consumer.assign([cursor.partition for cursor in active], at_once=self._takes_at_once)

    def poll(self, active: Iterable[RangeCursor], most: int, seconds: float) -> Poll:
        """Polls once, for at most `most` messages, and counts the records of each range.

        Never for more than are still to be read of `active`, as waiting for more would be in vain.
        """
        if self._is_to_assign:
            self.assign()
        most = min(most, _left(active))
        if self._takes_at_once and (queue := self._consumer.queue) is not None:
            return self._poll_at_once(queue, most, seconds)
        return uncollected(partial(self._poll, most, seconds))

    def _poll_at_once(self, queue: MessageQueue, most: int, seconds: float) -> Poll:
        """Polls `queue`, and then the consumer, which has errors that are no partition's, and lines for the log."""
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        with queue.consume(most, seconds) as messages:
            others = self._consumer.consumer.consume(_OTHERS, 0.0)
            waited = (SYSTEM_CLOCK.monotonic_ms() - began_ms) / 1000
            if len(faulty(others)) < len(others):
                raise IngestError("A consumer has delivered records that were to come at once.", DEFECT)
            errors = [*messages.errors, *others]
            lows, highs = self._bounds()
            held = to_arrow_at_once(messages, lows, highs, self._slots)
        self._count(held.slots)
        if held.has_headers:
            self._at_once, self._is_to_assign = None, True
        brought = [self.every[slot] for slot in np.unique(held.delivered)]
        return Poll(waited, errors, brought, held.records, held.slots)

    def _poll(self, most: int, seconds: float) -> Poll:
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        messages = self._consumer.consumer.consume(most, seconds)
        waited = (SYSTEM_CLOCK.monotonic_ms() - began_ms) / 1000
        errors = [messages[number] for number in faulty(messages)]
        if errors:
            messages = [message for message in messages if message.error() is None]
        if not messages:
            return Poll(waited, errors, [])
        lows, highs = self._bounds()
        delivered = self._slots.of(messages)
        kept, slots, offsets = within(messages, delivered, lows, highs)
        self._count(slots)
        brought = [self.every[slot] for slot in np.unique(delivered)]
        records = to_arrow(kept, slots, offsets, self._slots) if kept else None
        return Poll(waited, errors, brought, records, slots)

    def _bounds(self) -> tuple[Longs, Longs]:
        """Returns between which offsets the records of each cursor are kept."""
        lows = np.array([cursor.position for cursor in self.every], np.int64)
        return lows, np.array([-1 if cursor.dropped else cursor.part.hi for cursor in self.every], np.int64)

    def _count(self, slots: Longs) -> None:
        for slot, count in zip(*np.unique(slots, return_counts=True), strict=True):
            self.every[slot].records += int(count)

    def advance(self, asked: Sequence[RangeCursor]) -> bool:
        """Moves the cursors `asked` to the consumer's positions; returns whether any got further."""
        positions = self._consumer.consumer.position([cursor.partition for cursor in asked])
        moved = False
        for cursor, answer in zip(asked, positions, strict=True):
            if answer.offset > cursor.position:  # negative (invalid) until something was delivered
                cursor.position, moved = min(answer.offset, cursor.part.hi), True
        return moved

    def put_back(self, poll: Poll, count: int) -> None:
        """Moves cursors back before the last `count` records of `poll`, after `advance`. No poll may follow."""
        if not count or poll.records is None or poll.slots is None:
            return
        first = len(poll.slots) - count
        offsets = poll.records["offset"].to_numpy()[first:]
        for slot, at, records in zip(
            *np.unique(poll.slots[first:], return_index=True, return_counts=True), strict=True
        ):
            self.every[slot].position = int(offsets[at])
            self.every[slot].records -= int(records)

    def pause(self, cursors: Iterable[RangeCursor]) -> None:
        """Has the consumer deliver nothing more of `cursors`, if there are any."""
        if partitions := [Partition(*cursor.tp) for cursor in cursors]:
            self._consumer.pause(partitions)


def _left(cursors: Iterable[RangeCursor]) -> int:
    """Counts the offsets that are still to be read."""
    return sum(cursor.part.hi - cursor.position for cursor in cursors)


@dataclass
class IdleTime:
    """Counts the seconds of waiting without progress; the time that records take to be processed does not count."""

    # Since the last progress.
    seconds: float = 0.0
    # How many of them had passed when brokers were last asked why.
    looked: float = 0.0
    # A consumer's error asks for a look at once.
    doubt: bool = False
    # The last such error, for the message of one that is raised later.
    reason: str = ""

    def waited(self, seconds: float, *, moved: bool) -> None:
        """Counts a poll or a look of `seconds`; `moved` says whether any range got further by it."""
        if moved:
            self.seconds = self.looked = 0.0
            self.reason = ""
        else:
            self.seconds += seconds

    def should_look(self, look_s: float) -> bool:
        """Returns whether it is time to ask the brokers what is wrong: after an error, and every `look_s` seconds."""
        return self.doubt or self.seconds - self.looked >= look_s

    def look(self) -> bool:
        """Begins a look; returns whether an error of the consumer asked for it."""
        self.looked = self.seconds
        doubt, self.doubt = self.doubt, False
        return doubt


def nothing_left(
    clients: ClientSettings,
    cursors: Iterable[RangeCursor],
    connect: Callable[[dict[str, Any]], Consumer] = Consumer,
    within_s: float = EMPTY_S,
) -> frozenset[TopicPartition]:
    """Returns the partitions of `cursors` that have no committed record between position and end.

    Only those for which a read_committed consumer, made by `connect`, shows that in time; of the others nothing is
    known.
    """
    waiting = {cursor.tp: cursor for cursor in cursors}
    empty: set[TopicPartition] = set()
    if not waiting:
        return frozenset()
    settings = {**clients.consumer(), "enable.partition.eof": True, "queued.min.messages": 1}
    with closing(connect(settings)) as consumer:
        consumer.assign([cursor.partition for cursor in waiting.values()])
        deadline = Deadline(within_s)
        while waiting and not deadline.has_passed:
            for message in consumer.consume(len(waiting), _EMPTY_POLL_S):
                cursor = waiting.pop(TopicPartition(message.topic() or "", message.partition() or 0), None)
                if cursor is not None and _passes(message, cursor.part.hi):
                    empty.add(cursor.tp)
    return frozenset(empty)


def _passes(message: Message, end: int) -> bool:
    """Returns whether the first thing delivered is the end of the partition, or a record, at `end` or above.

    After any other error nothing is shown: librdkafka goes on after a batch that it cannot read.
    """
    error, offset = message.error(), message.offset()
    return (error is None or error.code() == KafkaError._PARTITION_EOF) and offset is not None and offset >= end
