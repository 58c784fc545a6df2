"""The engine's Publisher in memory: what tasks send goes to `tests.support.memory.journal`.

It keeps the steps of docs/protocol.md, and a test can make it fail at any of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.catalog.history import newest_epoch
from compactor.errors import FencedError, OutcomeUnknownError, PositionMovedError, PublishInterruptedError
from compactor.model.position import Position
from compactor.model.publish_plan import PublishPlan, PublishResult, PublishTarget
from compactor.model.record import TopicPartition
from compactor.storage.base import Storage
from connectors.sinks.partitioner import partitions_of
from tests.support.memory.journal import (
    REFUSED,
    CommittedPosition,
    Event,
    Journal,
    JournalEntry,
    OutputRecord,
    OutputTopic,
    output_records,
)

EVERYTHING: Final = 1 << 62
"""More records than any transaction has."""

Rows = Sequence[Mapping[str, Any]]


class PublishStep(Enum):
    """Where a publisher can fail, by the steps of docs/protocol.md."""

    FENCE = "6: its producer is initialised"
    SENT = "9: the records of a transaction are sent"
    COMMITTED = "11: a transaction is committed"


class PublishFault(Struct, frozen=True, kw_only=True):
    """A publish task fails at `step` of its transaction number `transaction`, counted from 1.

    At COMMITTED only the answer is lost. `dies`: its process ends there, without a word.
    """

    step: PublishStep
    transaction: int = 1
    dies: bool = False

    def strike(self, bucket: int) -> None:
        """Raises, or kills the process, as the fault says."""
        if self.dies:
            os._exit(1)
        if self.step is PublishStep.COMMITTED:
            raise OutcomeUnknownError(f"Bucket {bucket}: the commit was not answered.", "It is read back.")
        raise PublishInterruptedError(f"Bucket {bucket}: failed on purpose at step {self.step.value}.", "Try again.")


class MemoryPublisher(Struct, frozen=True, kw_only=True):
    """A Publisher into the journal below `storage`.

    `connector` is the connector's folder, read for the newest epoch; None: no other can own it. `output_ids`: the
    topic id of each output. A transaction holds `most_records` at most.
    """

    storage: Storage
    connector: Storage | None = None
    output_ids: dict[str, str] = {}
    most_records: int = EVERYTHING
    fault: PublishFault | None = None

    def publish(self, plan: PublishPlan, records: Iterator[pa.RecordBatch]) -> Sequence[PublishResult]:
        """See Publisher. Raises FencedError, PositionMovedError, PublishInterruptedError, OutcomeUnknownError."""
        rows = [row for batch in records for row in batch.to_pylist()]
        task = _Task(self, plan)
        task.open()
        for number, transaction in enumerate(_transactions(plan, rows, self.most_records), start=1):
            task.send(number, transaction)
        return tuple(task.sent.values())

    def fails(self, step: PublishStep, transaction: int) -> bool:
        """Whether it fails at this step of this transaction."""
        return self.fault is not None and (self.fault.step, self.fault.transaction) == (step, transaction)


class _Transaction(NamedTuple):
    """The content of one transaction; `offsets` are those of its positions."""

    records: tuple[OutputRecord, ...]
    letters: tuple[OutputRecord, ...]
    offsets: dict[TopicPartition, int]

    def counts(self, tp: TopicPartition) -> tuple[int, int]:
        """Counts records and dead letters of a partition."""
        found = sum(one.tp == tp and not one.retires for one in self.records)
        return found, sum(one.tp == tp for one in self.letters)

    def written(self, tp: TopicPartition) -> int:
        """Counts all that goes to the output partition of `tp`."""
        return sum(one.output_tp == tp for one in self.records)


def _transactions(plan: PublishPlan, rows: Rows, most: int) -> Iterator[_Transaction]:
    """`rows` (record.RUN, by partition and offset) in transactions of at most `most`.

    A partition's last one commits the target's end, an earlier one the offset behind its own last record; partitions
    without records are in the last of all.
    """
    starts = range(0, len(rows), most) or (0,)
    ends = {target.tp: target.end for target in plan.targets}
    published = {target.tp for target in plan.targets if target.output is not None}
    numbers = {target.tp: target.generation.number if target.generation else 1 for target in plan.targets}
    outputs = {target.topic: target.outputs for target in plan.targets}
    last = {**dict.fromkeys(ends, starts[-1]), **{_tp(row): n // most * most for n, row in enumerate(rows)}}
    for start in starts:
        part = rows[start : start + most]
        inside = {_tp(row): int(row["offset"]) + 1 for row in part}
        whole = {tp: ends[tp] for tp, place in last.items() if place == start}
        sent = [(row, one) for row in part for one in output_records(row, numbers[_tp(row)])]
        kept = tuple(_placed(one, outputs) for row, one in sent if not _is_letter(row, one) and one.tp in published)
        letters = tuple(one for row, one in sent if _is_letter(row, one))
        yield _Transaction(kept, letters, {**inside, **whole})


def _placed(record: OutputRecord, outputs: Mapping[str, int | None]) -> OutputRecord:
    """Returns `record` in the output partition of its key, if keys are spread over `outputs` of its topic."""
    count = outputs[record.topic]
    if count is None or (record.source_offset < 0 and not record.retires):  # for what its own partition has of the key
        return record
    (place,) = partitions_of(pa.array([record.key], pa.binary()), count).tolist()
    return replace(record, place=place)


def _is_letter(row: Mapping[str, Any], sent: OutputRecord) -> bool:
    """Returns whether what is `sent` for a row is a dead letter; tombstones of keys that it retires never are."""
    return row["rejected"] is not None or (row["value"] == REFUSED and not sent.retires)


class _Task:
    """One call of a publisher, with one producer; `sent` is what it has committed for each target."""

    def __init__(self, publisher: MemoryPublisher, plan: PublishPlan) -> None:
        self.sent = {target.tp: _nothing(target) for target in plan.targets}
        self._publisher = publisher
        self._plan = plan
        self._journal = Journal(publisher.storage)
        self._opened = -1

    def open(self) -> None:
        """Does steps 6 and 7: fences, and checks the positions."""
        self._opened = self._journal.open(self._plan.bucket)
        self._strike(PublishStep.FENCE, 1)
        self._check_epoch()
        self._check_positions()

    def send(self, number: int, transaction: _Transaction) -> None:
        """Does steps 8 to 11: one transaction."""
        if self._publisher.fails(PublishStep.SENT, number):
            records = transaction.records
            self._append(lambda _: JournalEntry(event=Event.ABORTED, bucket=self._plan.bucket, records=records))
        self._strike(PublishStep.SENT, number)
        before = self._journal.read().ends.copy()  # no other producer writes to these partitions, or this one is fenced
        moved = [target.tp for target in self._moved(transaction)]
        self.sent.update({tp: self._after(tp, before.get(tp, 0), transaction) for tp in moved})
        first = next(iter(transaction.offsets))
        self.sent[first] = replace(self.sent[first], transactions=self.sent[first].transactions + 1)
        self._append(lambda _: self._committed(transaction))
        self._strike(PublishStep.COMMITTED, number)

    def _strike(self, step: PublishStep, transaction: int) -> None:
        if self._publisher.fault is not None and self._publisher.fails(step, transaction):
            self._publisher.fault.strike(self._plan.bucket)

    def _check_epoch(self) -> None:
        connector = self._publisher.connector
        newest = self._plan.epoch if connector is None else newest_epoch(connector, self._plan.catalog_id)
        if newest != self._plan.epoch:
            raise FencedError(f"Bucket {self._plan.bucket}: epoch {newest} owns the connector now.", "Stop.")

    def _check_positions(self) -> None:
        held = self._journal.read().positions
        for target in self._plan.targets:
            position = held.get(target.tp)
            ours = position is None or position.catalog_id in (None, self._plan.catalog_id)
            if (position.offset if position else None) != target.committed or not ours:
                raise PositionMovedError(
                    f"{target.tp}: {position} is held, {target.committed} was planned.", "Try again."
                )

    def _append(self, decide: Callable[[OutputTopic], JournalEntry]) -> None:
        def checked(output: OutputTopic) -> JournalEntry:
            self._journal.check(self._plan.bucket, self._opened)
            return decide(output)

        self._journal.append(checked)

    def _committed(self, transaction: _Transaction) -> JournalEntry:
        return JournalEntry(
            event=Event.COMMITTED,
            bucket=self._plan.bucket,
            records=transaction.records,
            letters=transaction.letters,
            positions=tuple(
                CommittedPosition(*target.tp, self._position(target)) for target in self._moved(transaction)
            ),
        )

    def _moved(self, transaction: _Transaction) -> list[PublishTarget]:
        written = {one.output_tp for one in transaction.records}
        return [target for target in self._plan.targets if target.tp in transaction.offsets or target.tp in written]

    def _position(self, target: PublishTarget) -> Position:
        sent = self.sent[target.tp]
        return Position(
            offset=sent.end,
            catalog_id=self._plan.catalog_id,
            output_id=None if target.output is None else self._publisher.output_ids.get(target.output),
            output_offset=sent.output_offset,
            fold_end=target.end if sent.end < target.end else target.fold_end,
            generation=target.generation.number if target.generation else 1,
            start=target.generation.start if target.generation else 0,
            identity=self._plan.identity,
            winners=self._plan.winners,
            buckets=self._plan.buckets,
            fence=None if target.fence is None else target.fence.value,
            fence_at=None if target.fence is None else target.fence.offsets.get(target.partition),
            late_last=target.late_last if sent.end == target.end else None,
        )

    def _after(self, tp: TopicPartition, high_watermark: int, transaction: _Transaction) -> PublishResult:
        """Returns what is sent of `tp` after `transaction`, whose first record goes to `high_watermark`."""
        sent, (records, letters), written = self.sent[tp], transaction.counts(tp), transaction.written(tp)
        refused = sum(each.tp == tp and each.value == REFUSED for each in transaction.letters)
        return replace(
            sent,
            end=transaction.offsets.get(tp, sent.end),
            output_offset=high_watermark + written if written else sent.output_offset,
            records=sent.records + records,
            dead_letters=sent.dead_letters + letters,
            refused=sent.refused + refused,
            rejected=sent.rejected + letters - refused,
        )


def _tp(row: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(row["topic"], row["partition"])


def _nothing(target: PublishTarget) -> PublishResult:
    return PublishResult(
        topic=target.topic, partition=target.partition, end=target.start, output_offset=target.output_offset
    )
