"""Reads the portions of several connectors with one consumer, for a bounded time and a bounded number of bytes.

No connector may hold up the others here: a range that makes no progress, is refused, or holds more than fits is left
where it is, and the portion says how far it was read. `reader.py` reads such ranges in a job of their own, looks for
the reason and raises it. So nothing is decided here, and a range is never stated beyond the consumer's position.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final
from zlib import crc32

import numpy as np
import pyarrow as pa
import structlog
from confluent_kafka import Message
from confluent_kafka import TopicPartition as Partition
from msgspec import Struct
from msgspec.structs import replace

from compactor.failpoints import hit
from compactor.model.record import TopicPartition
from connectors.kafka.consumers import AssignedConsumer, borrowed
from connectors.source.arrow_records import Longs, PartitionSlots, faulty, range_rows, to_arrow, with_range, within
from connectors.source.assignment import PortionSplit
from connectors.source.collector import uncollected
from connectors.source.plan import SourceRange
from connectors.source.reader import IdleTime, RangeCursor
from connectors.source.topics import AdminTopics

_POLL_S: Final = 0.02
_MANY: Final = 1_000
"""Of more partitions a poll gathers for longer in proportion: after each poll all of them are looked through."""
_CHUNK: Final = 5_000
_A_CONSUMER: Final = 2_500
"""How many partitions one consumer reads at most. For each that is assigned, and each that is given up, librdkafka
looks through all that the consumer has ever read: four consumers of 2,500 take a third of the time of one of 10,000."""
_REQUEST_S: Final = 2.0
"""How long (s) a question about topics may take; who has no answer by then is read by jobs of their own."""
_log = structlog.get_logger()
Stated = tuple[SourceRange, int, int]
"""What a row of `range_rows` states: the range that was read, the first offset asked for, the records."""


class ReadBudget(Struct, frozen=True):
    """What one task may use for portions of several connectors.

    `idle_s`: seconds without any progress; `seconds`: in all; `max_bytes`: key, value and headers of all records.
    """

    idle_s: float = 1.0
    seconds: float = 2.0
    max_bytes: int = 64 << 20


BUDGET: Final = ReadBudget()


def read_bounded(
    portions: Sequence[PortionSplit], budget: ReadBudget = BUDGET
) -> Iterator[tuple[PortionSplit, list[pa.RecordBatch]]]:
    """Reads the portions, those with equal client settings with one consumer. Yields each of which anything was read.

    The batches are of `record.SOURCE`: records, each partition's in order, then a row for each range that says how far
    it was read. A portion about which anything is wrong may be missing.
    """
    until = time.monotonic() + budget.seconds
    for group in _groups(portions):
        try:
            found = _read(group, budget, until)
        except Exception as error:  # noqa: BLE001  # a job of its own finds it again, for each connector
            names = sorted({portion.options.connector for portion in group})
            _log.debug("portions are left for jobs of their own", connectors=names, error=str(error))
        else:
            yield from found


def _groups(portions: Iterable[PortionSplit]) -> list[list[PortionSplit]]:
    """Groups portions that one consumer can read: equal settings, and no partition twice."""
    found: list[tuple[list[PortionSplit], set[TopicPartition]]] = []
    for portion in portions:
        keys = {one.topic_partition for one in portion.split.ranges}
        for group, read in found:
            if group[0].clients == portion.clients and not keys & read:
                group.append(portion)
                read.update(keys)
                break
        else:
            found.append(([portion], keys))
    return [group for group, _ in found]


def _read(
    group: Sequence[PortionSplit], budget: ReadBudget, until: float
) -> list[tuple[PortionSplit, list[pa.RecordBatch]]]:
    unsound: set[int] = set()
    records: dict[int, list[pa.RecordBatch]] = {}
    stated: dict[int, list[Stated]] = {}
    max_bytes = budget.max_bytes
    for nth, (share, ranges) in enumerate(_shares(group)):
        if nth and (max_bytes <= 0 or time.monotonic() >= until):
            break
        with borrowed(group[0].clients, _REQUEST_S, share) as consumer:
            read = _BoundedRead(group[0].options.connector, ranges, consumer, replace(budget, max_bytes=max_bytes))
            read.run(until)
            unsound |= read.unsound()
        max_bytes -= read.bytes
        for number in range(len(group)):
            if own := read.stated(number):
                stated.setdefault(number, []).extend(own)
                records.setdefault(number, []).extend(read.records(number))
    return [
        (group[number], [*records[number], range_rows(stated[number])]) for number in sorted(stated.keys() - unsound)
    ]


def _shares(group: Sequence[PortionSplit]) -> Iterator[tuple[str, list[tuple[int, SourceRange]]]]:
    """Deals the ranges of `group` to consumers, by topic and always alike: yields a consumer's name, and its ranges.

    A range has the number of its portion in `group`.
    """
    pairs = [(number, one) for number, portion in enumerate(group) for one in portion.split.ranges]
    count = 1
    while len(pairs) > count * _A_CONSUMER:
        count *= 2
    shares: dict[int, list[tuple[int, SourceRange]]] = {}
    for number, one in pairs:
        shares.setdefault(crc32(one.topic.encode()) % count, []).append((number, one))
    for share, ranges in sorted(shares.items()):
        yield f"{share} of {count}", ranges


class _BoundedRead:
    """Reads ranges with one consumer, once; each has the number of its portion, its owner.

    `bytes`: key, value and headers of all records so far.
    """

    def __init__(
        self,
        connector: str,
        ranges: Sequence[tuple[int, SourceRange]],
        consumer: AssignedConsumer,
        budget: ReadBudget,
    ) -> None:
        self.bytes = 0
        self._consumer = consumer
        self._budget = budget
        self._cursors = [RangeCursor(one, one.lo, one.lo) for _, one in ranges]
        self._owners: Longs = np.array([number for number, _ in ranges], np.int64)
        self._slots = PartitionSlots([cursor.key for cursor in self._cursors])
        self._left: set[int] = set()
        self._found: dict[int, list[pa.RecordBatch]] = {}
        self._topics = AdminTopics(connector, consumer.admin)

    def run(self, until: float) -> None:
        """Polls until every range is finished, or its portion left, or the budget, or the time `until`, is used up.

        After a poll only the partitions that it brought records of are asked how far they are; all of them after one
        that brought none, as what ends a range may be no record, and at the end. A finished partition that still brings
        records is paused then, not before: a pause waits for librdkafka, half a second for ten thousand.
        """
        idle = IdleTime()
        self._consumer.assign([cursor.partition for cursor in self._cursors])
        active = self._active()
        while active:
            began = time.monotonic()
            left = sum(cursor.part.hi - cursor.position for cursor in active)
            poll_s = _POLL_S * max(1.0, len(active) / _MANY)
            found = uncollected(partial(self._poll, min(_CHUNK, left), poll_s))
            brought = [cursor for cursor in found if not cursor.finished]
            if len(brought) < len(found):
                self._consumer.pause([Partition(*cursor.key) for cursor in found if cursor.finished])
            idle.waited(time.monotonic() - began, moved=self._advance(brought or active))
            over = time.monotonic() >= until or self.bytes >= self._budget.max_bytes
            if over or idle.seconds >= self._budget.idle_s:
                if brought:
                    self._advance(self._active())
                return
            active = self._active()

    def _poll(self, most: int, seconds: float) -> list[RangeCursor]:
        """Polls once, and keeps what came; returns the ranges that records came of."""
        return self._keep(self._sound(self._consumer.consumer.consume(most, seconds)))

    def unsound(self) -> set[int]:
        """Returns the owners that were left, or of which a topic is another one by id now. Raises NoAnswerError."""
        ids = {one.part.topic: one.part.topic_id for one in self._cursors if one.position > one.part.lo}
        found = self._topics.named(ids) if ids else {}
        changed = {name for name, one in ids.items() if name not in found or found[name].id != one}
        pairs = zip(self._cursors, self._owners, strict=True)
        return self._left | {int(owner) for cursor, owner in pairs if cursor.part.topic in changed}

    def stated(self, owner: int) -> list[Stated]:
        """Returns a row for each range of the portion `owner` of which anything was read; none where it was left."""
        if owner in self._left:
            return []
        mine = [cursor for cursor, whose in zip(self._cursors, self._owners, strict=True) if whose == owner]
        moved = [cursor for cursor in mine if cursor.position > cursor.part.lo]
        for _ in moved:
            hit("source.read")
        return [(_up_to(cursor), cursor.start, cursor.records) for cursor in moved]

    def records(self, owner: int) -> list[pa.RecordBatch]:
        """Returns the records that were read of the portion `owner`."""
        return self._found.get(owner, [])

    def _active(self) -> list[RangeCursor]:
        pairs = zip(self._cursors, self._owners, strict=True)
        return [cursor for cursor, owner in pairs if not cursor.finished and owner not in self._left]

    def _sound(self, messages: list[Message]) -> list[Message]:
        """Returns the records among `messages`; leaves each portion in which an error stands in place of one.

        All of it: librdkafka goes on behind a batch that it cannot read, so its position says nothing any more.
        """
        odd = faulty(messages)
        for number in odd:
            found = TopicPartition(messages[number].topic() or "", messages[number].partition() or 0)
            pairs = zip(self._cursors, self._owners, strict=True)
            self._leave({int(owner) for cursor, owner in pairs if cursor.key == found} - self._left)
        return [message for message in messages if message.error() is None] if odd else messages

    def _leave(self, owners: set[int]) -> None:
        """Reads no more of these portions, and drops what was read of them."""
        pairs = list(zip(self._cursors, self._owners, strict=True))
        if stopped := [Partition(*cursor.key) for cursor, owner in pairs if owner in owners]:
            self._consumer.pause(stopped)
        self._left |= owners
        for owner in owners:
            self._found.pop(owner, None)

    def _keep(self, messages: list[Message]) -> list[RangeCursor]:
        """Makes Arrow of the messages that belong to the ranges, and counts them; returns the ranges of all."""
        if not messages:
            return []
        lows = np.array([cursor.position for cursor in self._cursors], np.int64)
        highs = np.array([cursor.part.hi for cursor in self._cursors], np.int64)
        highs[np.isin(self._owners, list(self._left))] = -1
        every = self._slots.of(messages)
        kept, slots, offsets = within(messages, every, lows, highs)
        for slot, records in zip(*np.unique(slots, return_counts=True), strict=True):
            self._cursors[slot].records += int(records)
        if kept:
            batch = with_range(to_arrow(kept, slots, offsets, self._slots))
            self.bytes += batch.nbytes
            for owner, rows in _by_owner(self._owners[slots]).items():
                mine = batch.take(pa.array(rows)) if rows.size < len(kept) else batch
                self._found.setdefault(owner, []).append(mine)
        return [self._cursors[slot] for slot in np.unique(every)]

    def _advance(self, asked: Sequence[RangeCursor]) -> bool:
        """Updates the cursors `asked` by the consumer's positions; returns whether any got further."""
        waiting = [cursor for cursor in asked if not cursor.finished]
        positions = self._consumer.consumer.position([cursor.partition for cursor in waiting])
        moved = False
        for cursor, found in zip(waiting, positions, strict=True):
            if found.offset > cursor.position:  # negative until something was delivered
                cursor.position, moved = min(found.offset, cursor.part.hi), True
        return moved


def _up_to(cursor: RangeCursor) -> SourceRange:
    return replace(cursor.part, hi=cursor.position)


def _by_owner(owners: Longs) -> Mapping[int, Longs]:
    """Returns the rows of each owner, in their order."""
    return {int(owner): np.flatnonzero(owners == owner) for owner in np.unique(owners)}
