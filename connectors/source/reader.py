"""Reads a bundle of ranges with one consumer.

A range is finished when the consumer's position has reached its end: the position passes markers, aborted records and
holes, where a last record, an empty poll or an end-of-partition event say nothing. Only what was aborted right below a
transaction that is still open it does not pass: that nothing else is left there is asked for (unseen.py).
A range that does not move is looked into by what the broker states (outcome.py); it ends in a gap that is
stated, or in an error, never in fewer records.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import pyarrow as pa
import structlog
from confluent_kafka import Message
from confluent_kafka import TopicPartition as Partition

from compactor.failpoints import hit
from compactor.model.record import TopicPartition
from connectors.kafka import gone
from connectors.kafka.consumers import Session, borrowed
from connectors.source import source_errors as outcome
from connectors.source.arrow_records import Slots, bounded, faulty, statements, to_arrow, whole, with_range, within
from connectors.source.cluster import KafkaCluster, NoAnswerError
from connectors.source.options import SourceOptions
from connectors.source.plan import Bundle, SourceTopic
from connectors.source.progress import LOOK_S, Cursor, Watch
from connectors.source.source_errors import RangeFault, Standing, TopicVerdict
from connectors.source.unseen import nothing_left

_POLL_S: Final = 0.05
_AGAIN_S: Final = 0.2
_FIRST: Final = 1_000
_MOST: Final = 20_000
_log = structlog.get_logger()


def read(bundle: Bundle, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The records of the bundle's ranges, each partition's in order, and with `ranges` a row for every range.

    Raises DataLossError, SourceChangedError, UnreachableError, or ConnectorError where reading is refused or a
    batch is damaged; without `ranges` RejectedRecordError for a record that cannot be read whole.
    """
    if not bundle.ranges:
        return
    with borrowed(options.clients) as session, _uncollected():
        yield from _Reading(bundle, options, session).batches()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Inside, Python's cyclic garbage collector rests: until the whole bundle is read, and whatever is done with it.

    It would look through the thousands of messages of every poll again and again (docs/decisions/findings.md); none of
    them is in a cycle.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Reading:
    """One read of one bundle."""

    def __init__(self, bundle: Bundle, options: SourceOptions, session: Session) -> None:
        self._options = options
        self._session = session
        self._cursors = [Cursor(each, each.lo, each.lo) for each in bundle.ranges]
        self._slots = Slots([cursor.key for cursor in self._cursors])
        self._chunk = _FIRST
        self._watch = Watch()
        self._cluster = KafkaCluster(options.connector, session.admin, options.patience.timeout)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Polls until every range is finished, then makes sure that the topics were the same all the time."""
        self._assign()
        while self._active():
            began = time.monotonic()
            messages = self._poll()
            waited = time.monotonic() - began
            yield from self._shaped(self._records(messages))
            yield from self._stated(self._advance(waited))
            if self._watch.should_look():
                yield from self._stated(self._look())
        self._verify()

    def _active(self) -> list[Cursor]:
        return [cursor for cursor in self._cursors if not cursor.finished]

    def _assign(self) -> None:
        self._session.assign([cursor.partition for cursor in self._active()])

    def _poll(self) -> list[Message]:
        """The messages of one poll: no more than are still to be read, as waiting for more would be in vain."""
        left = sum(cursor.part.hi - cursor.position for cursor in self._active())
        found = self._session.consumer.consume(min(self._chunk, left), _POLL_S)
        odd = faulty(found)
        for number in odd:
            self._fault(found[number])
        return [message for message in found if message.error() is None] if odd else found

    def _records(self, messages: list[Message]) -> pa.RecordBatch | None:
        """The messages that belong to the ranges as one batch; counts them."""
        if not messages:
            return None
        lows = np.array([cursor.position for cursor in self._cursors], np.int64)
        highs = np.array([cursor.part.hi for cursor in self._cursors], np.int64)
        kept, slots, offsets = within(messages, self._slots.of(messages), lows, highs)
        for cursor, count in zip(self._cursors, np.bincount(slots, minlength=len(self._slots)), strict=True):
            cursor.records += int(count)
        return to_arrow(kept, slots, offsets, self._slots) if kept else None

    def _shaped(self, batch: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
        """The batch cut to size; the next poll is sized by what these records weigh."""
        if batch is None:
            return
        limit = self._options.limits.batch_bytes
        self._chunk = max(1, min(_MOST, limit * len(batch) // max(1, batch.nbytes), self._chunk * 10))
        for part in bounded(batch, limit):
            yield with_range(part) if self._options.reading.ranges else whole(part, self._options.connector)

    def _advance(self, waited: float) -> list[pa.RecordBatch]:
        """Takes the consumer's positions over; pauses and states the ranges that are finished by it."""
        active = self._active()
        positions = self._session.consumer.position([cursor.partition for cursor in active])
        moved = False
        for cursor, found in zip(active, positions, strict=True):
            # Negative (invalid) until something was delivered.
            if found.offset > cursor.position:
                cursor.position, moved = found.offset, True
        self._watch.waited(waited, moved=moved)
        return self._finish([cursor for cursor in active if cursor.finished])

    def _finish(self, finished: list[Cursor]) -> list[pa.RecordBatch]:
        if finished:
            self._session.consumer.pause([Partition(*cursor.key) for cursor in finished])
        for _ in finished:
            hit("source.read")
        return [statements(cursor.read for cursor in finished)] if finished else []

    def _stated(self, found: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self._options.reading.ranges:
            yield from found

    def _fault(self, message: Message) -> None:
        """An error in place of a record: it ends the read, asks for a look, or is remembered for a message."""
        error = message.error()
        assert error is not None
        key = TopicPartition(message.topic() or "", message.partition() or 0)
        position = next((cursor.position for cursor in self._cursors if cursor.key == key), -1)
        self._watch.reason = error.str()
        fault = outcome.classify(error.name())
        if fault is RangeFault.REFUSED:
            raise outcome.refused(self._options.connector, key, position, error.str())
        if fault is RangeFault.DAMAGED:
            raise outcome.damaged(self._options.connector, key, position, error.str())
        self._watch.doubt |= fault is RangeFault.LOOK

    def _look(self) -> list[pa.RecordBatch]:
        """Asks what became of the ranges that do not move; gives the statements of what ends in a gap."""
        began = time.monotonic()
        doubt = self._watch.look()
        stopped = self._active()
        standings = self._ask(stopped)
        stated = [row for cursor in stopped for row in self._settle(cursor, standings.get(cursor.key))]
        stated += self._pass(stopped, standings)
        if doubt:
            # A partition in error is not fetched any more until it is assigned again.
            time.sleep(_AGAIN_S)
        self._watch.waited(time.monotonic() - began, moved=bool(stated))
        self._check_patience(stopped[0])
        if doubt or stated or any(cursor.finished for cursor in stopped):
            self._assign()
        return stated

    def _ask(self, cursors: list[Cursor]) -> dict[TopicPartition, Standing]:
        """What the broker states of each; nothing where it does not answer."""
        try:
            topics = self._cluster.named(cursor.part.topic for cursor in cursors)
            there = [cursor.key for cursor in cursors if cursor.part.topic in topics]
            log_starts, log_ends = self._cluster.log_starts(there).offsets, self._cluster.log_ends(there).offsets
        except NoAnswerError as error:
            self._watch.reason = str(error)
            return {}
        return {
            cursor.key: Standing(_id(topics, cursor), log_starts.get(cursor.key), log_ends.get(cursor.key))
            for cursor in cursors
        }

    def _settle(self, cursor: Cursor, standing: Standing | None) -> list[pa.RecordBatch]:
        """Does what the standing of a range asks for: nothing, an error, or with on.data.loss=skip a gap."""
        name, part = self._options.connector, cursor.part
        verdict = (
            TopicVerdict.WAIT if standing is None else outcome.judge(part.topic_id, cursor.position, part.hi, standing)
        )
        if standing is None or self._may_come_back(cursor, verdict) or verdict is TopicVerdict.WAIT:
            return []
        if verdict is TopicVerdict.RECREATED:
            raise outcome.recreated(name, part.topic, part.topic_id, standing.topic_id or "")
        if verdict is TopicVerdict.TRUNCATED:
            raise outcome.below(name, cursor.key, part.hi, standing.log_end or 0)
        if not self._options.reading.skip_lost:
            raise outcome.missing(name, cursor.key, cursor.position, part.hi, standing)
        return self._skip(cursor, part.hi if standing.log_start is None else standing.log_start)

    def _pass(self, stopped: list[Cursor], standings: dict[TopicPartition, Standing]) -> list[pa.RecordBatch]:
        """Finishes the ranges whose rest is there and holds nothing that is ever delivered; gives their statements."""
        if self._watch.idle < 2 * LOOK_S:
            return []
        there = [cursor for cursor in stopped if not cursor.finished and _is_there(cursor, standings.get(cursor.key))]
        empty = nothing_left(self._options.clients, there)
        passed = [cursor for cursor in there if cursor.key in empty]
        for cursor in passed:
            cursor.position = cursor.part.hi
        return self._finish(passed)

    def _may_come_back(self, cursor: Cursor, verdict: TopicVerdict) -> bool:
        """Whether the topic is unknown, but not for long enough to be gone."""
        if verdict is not TopicVerdict.DELETED:
            cursor.absent_since = None
            return False
        now = time.monotonic()
        cursor.absent_since = now if cursor.absent_since is None else cursor.absent_since
        return now - cursor.absent_since < gone.SURE_S

    def _skip(self, cursor: Cursor, resume: int) -> list[pa.RecordBatch]:
        log = _log.bind(connector=self._options.connector, topic=cursor.part.topic, partition=cursor.part.partition)
        log.warning("source records are lost", offset=cursor.position, log_start=resume)
        stated = cursor.skip_to(resume)
        return [*stated, statements([cursor.read])] if cursor.finished else stated

    def _check_patience(self, cursor: Cursor) -> None:
        if self._watch.idle >= self._options.patience.timeout:
            name, reason = self._options.connector, self._watch.reason
            raise outcome.unreachable(name, cursor.key, cursor.position, self._watch.idle, reason)

    def _verify(self) -> None:
        """A topic's name may have passed to another topic while it was read: ids never come back."""
        topics = self._topics_now()
        for cursor in self._cursors:
            found = _id(topics, cursor)
            if found not in (None, cursor.part.topic_id):
                raise outcome.recreated(self._options.connector, cursor.part.topic, cursor.part.topic_id, found or "")

    def _topics_now(self) -> dict[str, SourceTopic]:
        self._watch.waited(0.0, moved=True)
        while True:
            began = time.monotonic()
            try:
                return self._cluster.named({cursor.part.topic for cursor in self._cursors})
            except NoAnswerError as error:
                self._watch.reason = str(error)
                time.sleep(_AGAIN_S)
                self._watch.waited(time.monotonic() - began, moved=False)
                self._check_patience(self._cursors[0])


def _id(topics: dict[str, SourceTopic], cursor: Cursor) -> str | None:
    found = topics.get(cursor.part.topic)
    return found.id if found else None


def _is_there(cursor: Cursor, standing: Standing | None) -> bool:
    """Whether the broker states that the rest of the range can be read."""
    if standing is None or standing.log_start is None or standing.log_end is None:
        return False
    return outcome.judge(cursor.part.topic_id, cursor.position, cursor.part.hi, standing) is TopicVerdict.WAIT
