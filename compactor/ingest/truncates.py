"""Says which tables were emptied in a batch, and which of them can be emptied here (debezium.truncate=apply). Pure.

A truncate has no key: it supersedes every record before it. If the connector's order is a field, that says what is
before it in all partitions (`model.fence`). Otherwise offsets say it, within one partition only (docs/protocol.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from compactor.errors import RejectedRecordError, TruncatedError
from compactor.ingest.appends import Batch
from compactor.model.fence import Fence, raised
from compactor.model.order import FIELD
from compactor.model.record import RangeRead, TopicPartition
from compactor.model.state import CatalogState

_NEXT: Final = (
    "Set compaction.order to a field of the event that says it, such as field:source.lsn; or give the topic one "
    "partition (topic.creation.default.partitions=1); or set debezium.truncate=warn, and sweep with keyfold resync "
    "CONNECTOR.json --topic TOPIC --since TIME."
)


class PendingTruncates(Struct, frozen=True):
    """The truncates of a batch that are not applied yet.

    `offsets`: those of the last ones, by topic and partition. `fences`: what they have left of topics, by the order.
    `refused`: by topic why one cannot be applied.
    """

    offsets: Mapping[TopicPartition, int] = {}
    fences: Mapping[str, Fence] = {}
    refused: Mapping[str, RejectedRecordError] = {}

    def error(self, connector: str) -> TruncatedError | None:
        """Returns the error that has them applied; None if there are none."""
        if not (self.offsets or self.fences):
            return None
        last = [f"{tp} at offset {offset}" for tp, offset in sorted(self.offsets.items())[:3]]
        where = ", ".join([*last, *sorted(self.fences)[:3]])
        return TruncatedError(
            f"Connector {connector}: tables were truncated: {where}.",
            "Their keys get tombstones; nothing has to be done.",
            self.offsets,
            self.fences,
        )


def pending(state: CatalogState, batch: Batch) -> PendingTruncates:
    """Returns the truncates of `batch` that are not applied yet."""
    if state.order.startswith(FIELD):
        return PendingTruncates(fences=_fences(state, batch))
    last = _last(state, batch)
    refused: dict[str, RejectedRecordError] = {}
    for tp in last:
        if (count := len(state.logs_of(tp.topic))) > 1 and tp.topic not in refused:
            refused[tp.topic] = _several_partitions(state, tp, count)
    return PendingTruncates({tp: offset for tp, offset in last.items() if tp.topic not in refused}, refused=refused)


def without_applied(state: CatalogState, batch: Batch) -> Batch:
    """Returns `batch`, which does not count truncates that were applied by the order before they were passed."""
    return replace(batch, ranges=tuple(_without_applied(state, read) for read in batch.ranges))


def _without_applied(state: CatalogState, read: RangeRead) -> RangeRead:
    fence, order, at = _fence_of(state, read.tp.topic), read.truncate_order, read.truncate_at
    if fence is None or order is None or at is None or not fence.reaches(read.tp.partition, order, at):
        return read
    return replace(read, truncates=0, last_truncate=None, truncate_order=None, truncate_at=None)


def _fences(state: CatalogState, batch: Batch) -> dict[str, Fence]:
    """Returns the fence of each topic that has a truncate which the present one does not reach."""
    fences: dict[str, Fence] = {}
    for read in batch.ranges:
        if read.truncate_order is None or read.truncate_at is None:
            continue
        topic, place = read.tp.topic, read.tp.partition
        before = fences.get(topic) or _fence_of(state, topic)
        after = raised(before, place, read.truncate_order, read.truncate_at)
        if after != before:
            fences[topic] = after
    return fences


def _fence_of(state: CatalogState, topic: str) -> Fence | None:
    known = state.topics.get(topic)
    return None if known is None or known.fence is UNSET else known.fence


def _last(state: CatalogState, batch: Batch) -> dict[TopicPartition, int]:
    """Returns the offset of the last truncate of each partition of `batch` that is not ingested yet."""
    logs, last = state.by_partition(), dict[TopicPartition, int]()
    for read in batch.ranges:
        if read.last_truncate is not None and read.last_truncate >= logs[read.tp].end:
            last[read.tp] = max(read.last_truncate, last.get(read.tp, 0))
    return last


def _several_partitions(state: CatalogState, tp: TopicPartition, count: int) -> RejectedRecordError:
    return RejectedRecordError(
        f"Connector {state.connector}: topic {tp.topic}, partition {tp.partition} has a truncate, which cannot "
        f"be applied: the topic has {count} partitions, and nothing says which records of the others are before it.",
        _NEXT,
        topic=tp.topic,
    )
