"""Reads portions of several connectors for a bounded time, and leaves the rest; raises nothing.

No connector may hold up the others: a range that makes no progress, is refused, or holds more than fits is left, and
the portion says how far it was read. What it leaves is read strictly after that (reader.py). So it decides nothing, and
never states a range beyond the consumer's position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from zlib import crc32

import numpy as np
import pyarrow as pa
import structlog
from msgspec import Struct

from compactor.failpoints import hit
from compactor.model.record import TopicPartition
from connectors.clock import Deadline, LoopClock
from connectors.kafka.consumers import AssignedConsumer, borrowed
from connectors.source.arrow_records import Longs, range_rows, with_range
from connectors.source.assignment import PortionSplit
from connectors.source.range_cursors import IdleTime, RangeCursor, RangeCursors
from connectors.source.reader import id_of
from connectors.source.topics import SourceTopics

_BOUNDED_POLL_S: Final = 0.02
_BOUNDED_CHUNK: Final = 5_000
_MANY: Final = 1_000
"""Of more partitions a poll gathers for longer in proportion: after each poll all of them are looked through."""
_STALLED_S: Final = 0.5
"""A poll that takes longer, with all that is done with its records, shows that this process stood still: polls end
within 0.2 s, and what they bring takes as long again. Such time is no reason to leave a portion, up to as much as the
budget has: then others have waited twice as long for the read."""
_REQUEST_S: Final = 2.0
"""How long (s) a question about topics may take in a bounded read; without an answer its portions are read apart."""
_log = structlog.get_logger()


class ReadBudget(Struct, frozen=True):
    """What one task may use for portions of several connectors."""

    # Seconds without any progress, and in all: so long the other connectors of the micro-batch wait.
    idle_s: float = 1.0
    seconds: float = 2.0
    # Key, value and headers of all records, which are in memory until they are written.
    max_bytes: int = 64 << 20
    # How many partitions one consumer reads at most. For each that is assigned, and each that is given up, librdkafka
    # looks through all that the consumer has ever read: four consumers of 2,500 take a third of the time of one of
    # 10,000.
    a_consumer: int = 2_500


BUDGET: Final = ReadBudget()


def read_bounded(
    portions: Sequence[PortionSplit], budget: ReadBudget = BUDGET
) -> Iterator[tuple[PortionSplit, list[pa.RecordBatch]]]:
    """Reads the portions, those with equal client settings with one consumer. Yields each of which anything was read.

    The batches are of `record.SOURCE`: records, each partition's in order, then a row for each range that says how far
    it was read. A portion about which anything is wrong may be missing.
    """
    running = LoopClock(round(1_000 * _STALLED_S), round(1_000 * budget.seconds))
    deadline = Deadline(budget.seconds, running)
    for group in _groups(portions):
        bounded_read = BoundedRead(group, budget, deadline, running)
        try:
            for share, cursors in bounded_read.shares():
                with borrowed(group[0].clients, _REQUEST_S, share) as consumer:
                    bounded_read.run(cursors, consumer)
        except Exception as error:  # noqa: BLE001  # a strict read finds it again, for each connector
            names = sorted({portion.options.connector for portion in group})
            _log.debug("portions are left to be read apart", connectors=names, error=str(error))
        else:
            yield from bounded_read.answers()


def _groups(portions: Iterable[PortionSplit]) -> list[list[PortionSplit]]:
    """Groups portions that one consumer can read: equal settings, and no partition twice."""
    groups: list[tuple[list[PortionSplit], set[TopicPartition]]] = []
    for portion in portions:
        partitions = {each.topic_partition for each in portion.ranges}
        for group, taken in groups:
            if group[0].clients == portion.clients and not partitions & taken:
                group.append(portion)
                taken.update(partitions)
                break
        else:
            groups.append(([portion], partitions))
    return [group for group, _ in groups]


class BoundedRead:
    """Reads the portions of `group` once, until `deadline` at most, each topic with one consumer.

    The owner of a cursor is the number of its portion in `group`.
    """

    def __init__(
        self,
        group: Sequence[PortionSplit],
        budget: ReadBudget,
        deadline: Deadline,
        running: LoopClock,
    ) -> None:
        self._group = group
        self._budget = budget
        self._deadline = deadline
        # Told of each poll: by it the deadline leaves out time in which this process stood still.
        self._running = running
        self._cursors = [
            RangeCursor(each, each.lo, each.lo, owner=owner)
            for owner, portion in enumerate(group)
            for each in portion.ranges
        ]
        # What was read of each portion, and key, value and headers of all of it.
        self._records: dict[int, list[pa.RecordBatch]] = {}
        self._bytes = 0
        # Owners of which something is wrong.
        self._dropped: set[int] = set()

    def shares(self) -> Iterator[tuple[str, list[RangeCursor]]]:
        """Deals the ranges to consumers, by topic and always alike; yields a consumer's name, and what it is to read.

        Once the budget is used up no further one follows, but the first always does.
        """
        count = 1
        while len(self._cursors) > count * self._budget.a_consumer:
            count *= 2
        shares: dict[int, list[RangeCursor]] = {}
        for cursor in self._cursors:
            shares.setdefault(crc32(cursor.part.topic.encode()) % count, []).append(cursor)
        for nth, (share, cursors) in enumerate(sorted(shares.items())):
            if nth and self._is_over():
                return
            yield f"{share} of {count}", cursors

    def run(self, share: Sequence[RangeCursor], consumer: AssignedConsumer) -> None:
        """Polls until every range is finished, or its portion dropped, or the budget is used up.

        After a poll only the partitions that it brought records of are asked how far they are; all of them after one
        that brought none, as what ends a range may be no record, and at the end. A finished partition that still brings
        records is paused then, not before: a pause waits for librdkafka, half a second for ten thousand.

        Raises NoAnswerError if the brokers do not tell whether the topics are still the same.
        """
        cursors, idle = RangeCursors(share, consumer), IdleTime()
        owners = np.array([cursor.owner for cursor in share], np.int64)
        cursors.assign()
        self._running.begin()
        while active := cursors.active():
            poll = cursors.poll(active, _BOUNDED_CHUNK, _BOUNDED_POLL_S * max(1.0, len(active) / _MANY))
            for message in poll.errors:
                # librdkafka goes on after a batch that it cannot read, so its position says nothing any more.
                tp = TopicPartition(message.topic() or "", message.partition() or 0)
                cursors.pause(self._drop({cursor.owner for cursor in share if cursor.tp == tp}, share))
            if poll.records is not None:
                self._keep(with_range(poll.records), owners[poll.slots])
            brought = [cursor for cursor in poll.brought if not (cursor.finished or cursor.dropped)]
            cursors.pause(cursor for cursor in poll.brought if cursor.finished)
            idle.waited(min(poll.seconds, _STALLED_S), moved=cursors.advance(brought or active))
            self._running.look()
            if self._is_over() or idle.seconds >= self._budget.idle_s:
                if brought:
                    cursors.advance(cursors.active())
                break
        moved = [cursor for cursor in share if cursor.position > cursor.part.lo]
        names = {cursor.part.topic for cursor in moved}
        topics = SourceTopics(self._group[0].options.connector, consumer.admin).named(names) if names else {}
        self._drop({cursor.owner for cursor in moved if id_of(topics, cursor) != cursor.part.topic_id}, share)

    def answers(self) -> Iterator[tuple[PortionSplit, list[pa.RecordBatch]]]:
        """Yields each portion of which anything was read, and nothing is wrong: its records, and a row per range."""
        for owner, portion in enumerate(self._group):
            moved = [cursor for cursor in self._cursors if cursor.owner == owner and cursor.position > cursor.part.lo]
            if moved and owner not in self._dropped:
                for _ in moved:
                    hit("source.read")
                yield portion, [*self._records.get(owner, []), range_rows(cursor.read for cursor in moved)]

    def _is_over(self) -> bool:
        return self._deadline.has_passed or self._bytes >= self._budget.max_bytes

    def _drop(self, owners: set[int], share: Sequence[RangeCursor]) -> list[RangeCursor]:
        """Reads no more of these portions, of which nothing counts any more; returns their ranges in `share`."""
        self._dropped |= owners
        for cursor in self._cursors if owners else ():
            cursor.dropped |= cursor.owner in owners
        return [cursor for cursor in share if cursor.owner in owners]

    def _keep(self, batch: pa.RecordBatch, owners: Longs) -> None:
        """Keeps the records of each portion, in their order."""
        self._bytes += batch.nbytes
        for owner in {int(owner) for owner in np.unique(owners)} - self._dropped:
            rows = np.flatnonzero(owners == owner)
            whole = rows.size == len(batch)
            self._records.setdefault(owner, []).append(batch if whole else batch.take(pa.array(rows)))
