"""Sends one transaction: records, dead letters and positions, all or nothing (steps 8 to 11 of docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby, repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition

from compactor.errors import OutcomeUnknownError, PublishInterruptedError
from compactor.failpoints import hit
from compactor.model.position import Position, encode
from compactor.model.record import TopicPartition, measure
from compactor.publish.retired import RETIRED
from connectors.clock import Deadline
from connectors.kafka.broker_text import broker_text
from connectors.kafka.errors import MISSING, REFUSED, cause, not_allowed
from connectors.kafka.producers import QUEUE, call_until_answered
from connectors.sinks import dead_letter
from connectors.sinks.batching import PartitionBatch, produce_groups
from connectors.sinks.encode import (
    Row,
    keys_in_order,
    output_rows,
    own_places,
    rows_of_generation,
    rows_with_retired,
    tombstones_of_retired,
)
from connectors.sinks.error_log import log_letters, warn_of_letters
from connectors.sinks.partitioner import partitions_of
from connectors.sinks.producer_session import ProducerSession
from connectors.sinks.publish_progress import NOTHING, PublishProgress, TransactionCounts
from connectors.sinks.settings import WriteRules

# How long (s) one call waits for reports of deliveries, so that a stop or a failure is noticed between two calls.
_POLL_S: Final = 0.05
_PURGED: Final = frozenset((KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT))


class Refused(Exception):  # noqa: N818 - never leaves the sink, which finds the record and decides about it
    """The broker refused a produce batch of the transaction; `reason` is the broker's.

    Its producer cannot be used any more, and the transaction may still be open: a new producer aborts it. `setting`:
    the producer's setting by which librdkafka itself refused a record.
    """

    def __init__(self, reason: str, setting: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.setting = setting


class Transaction:
    """Sends batches in one transaction after the other; each ends at the end of a batch."""

    def __init__(self, session: ProducerSession, progress: PublishProgress, rules: WriteRules) -> None:
        self.refused: dict[TopicPartition, dict[int, str]] = {}
        self._session = session
        self._progress = progress
        self._rules = rules
        # The next four are of the present transaction; `send` resets them.
        self._counts: dict[TopicPartition, TransactionCounts] = {}
        # Whether a transaction was begun and is neither committed nor aborted: only such a one counts as aborted.
        self._open = False
        # Partitions that got tombstones of retired keys, which no count shows: their high watermarks are needed too. If
        # keys are spread over the output (`PublishTarget.outputs`), all output partitions that were written to.
        self._written: set[TopicPartition] = set()
        # Records that were let go; they are logged once the transaction is committed.
        self._letters: list[tuple[TopicPartition, pa.RecordBatch]] = []

    def send(self, batches: Sequence[PartitionBatch]) -> int:
        """Commits as many of `batches` as the time of a transaction allows, at least one; returns how many.

        Raises Refused, after which the session has to be opened again; OutcomeUnknownError if the commit
        was not answered; PublishInterruptedError, UnreachableError, OutputError, FencedError after aborting.
        """
        self._counts.clear()
        self._letters.clear()
        self._written.clear()
        self._open = False
        self._session.failures.clear()
        try:
            return self._steps(batches)
        except KafkaException as error:
            raise self._aborted(cause(error), "the transaction failed") from error
        except OutcomeUnknownError:
            raise
        except BaseException:
            self._abort()
            raise

    def _steps(self, batches: Sequence[PartitionBatch]) -> int:
        session = self._session
        session.producer.begin_transaction()
        self._open = True
        hit("publish.begin")
        count = self._produce(batches)
        self._flush()
        hit("publish.sent")
        positions = self._progress.positions(batches[:count], self._high_watermarks())
        self._send_positions(positions)
        hit("publish.offsets")
        self._commit()
        session.committed()
        self._open = False
        hit("publish.committed")
        self._progress.commit(positions, self._counts)
        self._log_letters()
        return count

    def _log_letters(self) -> None:
        """Logs the records that were let go, once they are: a transaction that is aborted lets nothing go."""
        bucket = self._session.bucket
        for tp, letters in self._letters:
            if not self._rules.log_errors:
                topic, explained = self._rules.dead_letters, self._rules.context_headers
                warn_of_letters(bucket.connector, tp, letters, self.refused, topic=topic, explained=explained)
            else:
                log_letters(
                    bucket.connector, bucket.plan.bucket, tp, letters, self.refused, messages=self._rules.log_messages
                )

    def _produce(self, batches: Sequence[PartitionBatch]) -> int:
        """Takes step 9; ends early when the transaction has been open for as long as it may."""
        deadline = Deadline(self._session.limits.transaction_s)
        count = 0
        for group in produce_groups(batches, self._session.limits.batch_records):
            if count and deadline.has_passed:
                break
            self._produce_group([batch for batch in group if batch.records])
            self._session.producer.poll(0)
            self._check_deliveries()
            count += len(group)
        return count

    def _produce_group(self, batches: Sequence[PartitionBatch]) -> None:
        """Produces neighbouring small batches as one: one alone would take as long as hundreds."""
        for is_alone, neighbours in groupby(batches, self._is_alone):
            some = list(neighbours)
            if not is_alone and len(some) > 1:
                self._produce_joined(some)
                continue
            for batch in some:
                self._produce_batch(batch)

    def _produce_joined(self, batches: Sequence[PartitionBatch]) -> None:
        joined = pa.concat_batches([batch.rows for batch in batches])
        outputs = ((self._progress.output(batch.tp), batch.records) for batch in batches)
        topics = chain.from_iterable(repeat(output, records) for output, records in outputs if output is not None)
        rows = output_rows(joined, source_headers=self._rules.source_headers)
        if any(self._progress.outputs(batch.tp) is not None for batch in batches):
            partitions = chain.from_iterable(self._places(batch.tp, batch.rows) for batch in batches)
            self._produce_rows(topics, partitions, rows)
        else:
            self._produce_rows(topics, joined["partition"].to_pylist(), rows)
        for batch in batches:
            self._count(batch.tp, TransactionCounts(batch.records, batch.bytes))

    def _is_alone(self, batch: PartitionBatch) -> bool:
        """Returns whether it is produced by itself.

        It has no output, dead letters, a generation that its records name, or keys to retire.
        """
        progress = self._progress
        if progress.output(batch.tp) is None or progress.generation(batch.tp) > 1 or _retires(batch.rows):
            return True
        return bool(self.refused.get(batch.tp)) or batch.rows["rejected"].null_count < batch.records

    def _produce_batch(self, batch: PartitionBatch) -> None:
        plain, letters = dead_letter.split(batch.tp, batch.rows, self.refused)
        output = self._progress.output(batch.tp)
        counts = NOTHING
        if output is not None and plain.num_rows:
            self._produce_rows(repeat(output), self._places(batch.tp, plain), self._rows(batch.tp, plain))
            counts = TransactionCounts(plain.num_rows, batch.bytes if letters is None else measure(plain))
        if letters is not None:
            if output is not None and _retires(letters):
                self._produce_retired(batch.tp, output, letters)
            counts += self._produce_letters(batch.tp, letters)
        self._count(batch.tp, counts)

    def _places(self, tp: TopicPartition, rows: pa.RecordBatch, *, but_own: bool = False) -> Iterable[int]:
        """Returns the output partition of each of `rows`, before it those of the keys that it retires.

        `but_own`: these alone. There may be more of them if all are one.
        """
        outputs = self._progress.outputs(tp)
        if outputs is None:
            return repeat(tp.partition)
        places = partitions_of(keys_in_order(rows, but_own=but_own), outputs)
        if not but_own and (leads := pc.less(rows["offset"], 0).to_numpy(zero_copy_only=False)).any():
            # A tombstone that a generation begins with is for what this very partition has of its key.
            places[own_places(rows)[leads]] = tp.partition
        self._written |= {TopicPartition(tp.topic, number) for number in np.unique(places).tolist()}
        return places.tolist()

    def _rows(self, tp: TopicPartition, batch: pa.RecordBatch) -> Iterator[Row]:
        generation, source_headers = self._progress.generation(tp), self._rules.source_headers
        if generation == 1:
            rows = output_rows(batch, source_headers=source_headers)
        else:
            rows = rows_of_generation(batch, generation, source_headers=source_headers)
        if not _retires(batch):
            return rows
        sent = partial(hit, "publish.retired")
        return rows_with_retired(batch, rows, generation, sent, source_headers=source_headers)

    def _count(self, tp: TopicPartition, counts: TransactionCounts) -> None:
        self._counts[tp] = self._counts.get(tp, NOTHING) + counts

    def _produce_retired(self, tp: TopicPartition, output: str, letters: pa.RecordBatch) -> None:
        """Produces the tombstones of the keys that records retire which are let go themselves.

        A clean keeps of the identity only the record that was let go: no later one would know of these keys.
        """
        generation = self._progress.generation(tp)
        rows = tombstones_of_retired(letters, generation, source_headers=self._rules.source_headers)
        self._produce_rows(repeat(output), self._places(tp, letters, but_own=True), rows)
        if self._progress.outputs(tp) is None:
            self._written.add(tp)

    def _produce_letters(self, tp: TopicPartition, letters: Any) -> TransactionCounts:
        bucket, rules = self._session.bucket, self._rules
        if not rules.tolerate:
            dead_letter.refuse_rejected(bucket.connector, tp, letters, self.refused)
        self._letters.append((tp, letters))
        refused = sum(1 for offset in letters["offset"].to_pylist() if offset in self.refused.get(tp, {}))
        counts = TransactionCounts(refused=refused, rejected=letters.num_rows - refused)
        if rules.dead_letters is None:
            return counts
        rows = dead_letter.records(bucket.connector, bucket.plan.bucket, tp, letters, self.refused, rules)
        self._produce_rows(repeat(rules.dead_letters), repeat(-1), rows)
        return counts + TransactionCounts(dead_letters=letters.num_rows)

    def _produce_rows(self, topics: Iterable[str], partitions: Iterable[int], rows: Iterator[Row]) -> None:
        """Produces `rows` in a Python loop: librdkafka takes them one by one. Partition -1: it chooses by key.

        There are as many `topics` and `partitions`, or more.
        """
        produce, failed = self._session.producer.produce, self._session.failed
        for (value, key, timestamp, headers), topic, partition in zip(rows, topics, partitions, strict=False):
            try:
                produce(topic, value, key, partition, failed, None, timestamp, headers)
            except BufferError:
                self._produce_later(topic, partition, (value, key, timestamp, headers))
            except KafkaException as error:
                if cause(error).code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                raise self._too_large("message.max.bytes") from error

    def _too_large(self, setting: str) -> Refused:
        return Refused(f"the producer takes no record beyond its {setting} {self._session.setting(setting)}", setting)

    def _produce_later(self, topic: str, partition: int, row: Row) -> None:
        """Produces one record as soon as librdkafka's queue has room for it."""
        session = self._session
        value, key, timestamp, headers = row
        deadline = Deadline(session.limits.deadline_s)
        while True:
            waiting = len(session.producer)
            session.producer.poll(_POLL_S)
            try:
                return session.producer.produce(topic, value, key, partition, session.failed, None, timestamp, headers)
            except BufferError:
                self._check_deliveries()
                if waiting == 0:
                    raise self._too_large(QUEUE) from None
                if self._is_over(deadline):
                    raise self._aborted(_timed_out(), "records were not taken in time") from None

    def _flush(self) -> None:
        """Waits until everything is acknowledged. After a failure the rest would never leave librdkafka's queue."""
        deadline = Deadline(self._session.limits.deadline_s)
        while left := self._session.producer.flush(_POLL_S):
            if self._session.failures or self._is_over(deadline):
                raise self._aborted(_timed_out(), f"{left} records were not acknowledged")
        self._check_deliveries()

    def _check_deliveries(self) -> None:
        if self._session.failures:
            raise self._aborted(_timed_out(), "records were not delivered")

    def _high_watermarks(self) -> dict[TopicPartition, int]:
        """Returns the high watermark of each output partition that this transaction writes to."""
        own = (tp for tp, counts in self._counts.items() if counts.records and self._progress.outputs(tp) is None)
        written = self._written.union(own)
        outputs = {tp: TopicPartition(self._progress.output(tp) or "", tp.partition) for tp in written}
        marks = self._session.high_watermarks(outputs.values())
        return {tp: marks[output] for tp, output in outputs.items()}

    def _send_positions(self, positions: dict[TopicPartition, Position]) -> None:
        """Takes step 10."""
        places = [
            Partition(tp.topic, tp.partition, position.group_offset, encode(position))
            for tp, position in positions.items()
        ]
        try:
            self._session.send_offsets(places)
        except KafkaException as error:
            if cause(error).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                sources = ", ".join(sorted({place.topic for place in places}))
                doing = f"{self._session.bucket}: the positions of {sources} are not taken"
                raise not_allowed(cause(error), doing, f"Read on source topic {sources}") from error
            if cause(error).code() not in MISSING:
                raise
            raise PublishInterruptedError(
                f"{self._session.bucket}: the group takes no position for a source topic that is gone: "
                f"{broker_text(cause(error))}.",
                "Positions of a deleted topic cannot be committed; it has to be closed first.",
            ) from error

    def _commit(self) -> None:
        """Takes step 11: repeats the commit until it is answered. Raises OutcomeUnknownError if it is not."""
        session = self._session
        try:
            call_until_answered(session.producer.commit_transaction, session.limits.deadline_s, session.stopped)
        except KafkaException as error:
            kafka_error = cause(error)
            if kafka_error.txn_requires_abort() or kafka_error.fatal():
                raise
            raise OutcomeUnknownError(
                f"{session.bucket}: the commit of a transaction was not answered: {broker_text(kafka_error)}.",
                "The positions that the group holds tell whether it took effect; they are read again.",
            ) from error

    def _abort(self) -> None:
        """Aborts the transaction, and counts it once if it was begun: it takes no effect, answered or not."""
        self._session.abort()
        self._progress.aborted += self._open
        self._open = False

    def _is_over(self, deadline: Deadline) -> bool:
        """Returns whether nothing more is waited for: the time is up, or the publish was cancelled."""
        return deadline.has_passed or self._session.stopped()

    def _aborted(self, error: KafkaError, doing: str) -> Exception:
        """Aborts; returns the exception that the failed deliveries, or else `error`, come down to."""
        dropped = any(failure.code() in _PURGED for failure in self._session.failures)
        trouble = self._session.abort_reason() if dropped else None
        self._abort()  # this also brings the delivery reports that are still missing
        reasons = [failure for failure in self._session.failures if failure.code() not in _PURGED] + [trouble or error]
        refusal = next((reason for reason in reasons if reason.code() in REFUSED), None)
        if refusal is not None:
            return Refused(broker_text(refusal))
        return self._session.typed(reasons[0], doing)


def _retires(rows: pa.RecordBatch) -> bool:
    """Returns whether any record retires a key."""
    return RETIRED in rows.schema.names and rows[RETIRED].null_count < rows.num_rows


def _timed_out() -> KafkaError:
    return KafkaError(KafkaError._MSG_TIMED_OUT, "time is up")
