"""Counts how far one plan has come: each partition's committed position, and what was sent for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import add
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict, astuple, replace

from compactor.model.position import Position
from compactor.model.publish_plan import PublishPlan, PublishResult
from compactor.model.record import TopicPartition
from connectors.sinks.batching import PartitionBatch


class TransactionCounts(Struct, frozen=True):
    """Counts of one partition in one transaction; bytes by `record.measure`."""

    records: int = 0
    bytes: int = 0
    dead_letters: int = 0
    refused: int = 0
    rejected: int = 0

    def __add__(self, other: TransactionCounts) -> TransactionCounts:
        return TransactionCounts(*map(add, astuple(self), astuple(other)))


NOTHING: Final = TransactionCounts()


class PublishProgress:
    """The positions and counts that one plan has committed; they change only when a transaction is committed.

    `aborted` counts the transactions that were begun and aborted.
    """

    def __init__(self, plan: PublishPlan, output_ids: Mapping[str, str]) -> None:
        self._catalog_id = plan.catalog_id
        self._identity = plan.identity
        self._winners = plan.winners
        self._buckets = plan.buckets
        self._targets = {target.tp: target for target in plan.targets}
        self._output_ids = output_ids
        self.aborted = 0
        # The offset that the group holds of each partition, None: none. `commit` moves it.
        self.expected: dict[TopicPartition, int | None] = {
            tp: planned.committed for tp, planned in self._targets.items()
        }
        # What was committed of each partition so far; `commit` adds to it.
        self._sent = {
            tp: PublishResult(
                topic=tp.topic,
                partition=tp.partition,
                end=planned.start,
                output_offset=planned.output_offset,
                transactions=0,
                aborted=0,
                **asdict(NOTHING),
            )
            for tp, planned in self._targets.items()
        }

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions of the plan."""
        return list(self._targets)

    def output(self, tp: TopicPartition) -> str | None:
        """Returns the output topic of `tp`; None if it has none."""
        return self._targets[tp].output

    def outputs(self, tp: TopicPartition) -> int | None:
        """Returns over how many output partitions the keys of `tp` are spread; None: they stay in its partition."""
        return self._targets[tp].outputs

    def generation(self, tp: TopicPartition) -> int:
        """Returns the number of the generation of `tp`'s log."""
        generation = self._targets[tp].generation
        return generation.number if generation else 1

    def sent(self) -> tuple[PublishResult, ...]:
        """Returns what has been committed for every partition of the plan; the first says how much was aborted."""
        first, *others = self._sent.values()
        return (replace(first, aborted=self.aborted), *others)

    def positions(
        self, sent: Iterable[PartitionBatch], marks: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Position]:
        """Returns the positions that a transaction with the batches `sent` has to commit.

        `marks`: the high watermark of the output partition of each partition that has records in it. If that got
        records of other partitions alone, its own position is committed again, with this mark.
        """
        newest = {batch.tp: batch for batch in sent}
        offsets = {tp: self._targets[tp].end if batch.last else batch.next_offset for tp, batch in newest.items()}
        again = {tp: self._sent[tp].end for tp in marks if tp not in newest}
        return {tp: self._position(tp, offset, marks.get(tp)) for tp, offset in (offsets | again).items()}

    def _position(self, tp: TopicPartition, offset: int, mark: int | None) -> Position:
        target = self._targets[tp]
        return Position(
            offset=offset,
            catalog_id=self._catalog_id,
            output_id=None if target.output is None else self._output_ids[target.output],
            output_offset=self._sent[tp].output_offset if mark is None else mark,
            fold_end=target.end if offset < target.end else target.fold_end,
            generation=self.generation(tp),
            start=target.generation.start if target.generation else 0,
            identity=self._identity,
            winners=self._winners,
            buckets=self._buckets,
            fence=None if target.fence is None else target.fence.value,
            fence_at=None if target.fence is None else target.fence.offsets.get(tp.partition),
            late_last=target.late_last if offset == target.end else None,
        )

    def commit(
        self, positions: Mapping[TopicPartition, Position], counts: Mapping[TopicPartition, TransactionCounts]
    ) -> None:
        """Records a committed transaction."""
        for number, (tp, position) in enumerate(positions.items()):
            self.expected[tp], sent = position.offset, self._sent[tp]
            self._sent[tp] = replace(
                sent,
                end=position.offset,
                output_offset=position.output_offset,
                transactions=sent.transactions + (number == 0),
                **{name: getattr(sent, name) + count for name, count in asdict(counts.get(tp, NOTHING)).items()},
            )
