"""What publishing is told and tells, whichever process does it: plans, one a bucket, and what was sent.

`publishlocal` carries out in this process what is little, `publishtasks` in a task for each bucket what one process can
fold, `publishjob` folds any amount on Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict

from compactor.errors import FoldError
from compactor.model.log import PartitionLog
from compactor.model.record import OfPartition
from compactor.model.state import State
from compactor.runs.reader import OffsetRange, between

READ_BACK: Final = "This is a defect of keyfold; what is in doubt is read back before anything else is sent."


class PublishTarget(OfPartition, Struct, frozen=True, kw_only=True):
    """What one partition is to be sent: the survivors of [start, end), and its rejected records.

    `found` is the position that the group must still hold when the task begins (None: none);
    `output_offset` the high watermark that its metadata says. start == end commits the position again.
    """

    topic: str
    partition: int
    bucket: int
    output: str | None
    start: int
    end: int
    found: int | None = None
    output_offset: int | None = None


class PublishPlan(Struct, frozen=True, kw_only=True):
    """What one transactional id does next, and on whose behalf."""

    bucket: int
    epoch: int
    catalog_id: str
    targets: tuple[PublishTarget, ...]


class PublishResult(OfPartition, Struct, frozen=True, kw_only=True):
    """One target, sent completely; `bytes` by `record.measure`, `refused` records by the broker."""

    topic: str
    partition: int
    end: int
    output_offset: int | None = None
    records: int = 0
    bytes: int = 0
    dead_letters: int = 0
    refused: int = 0
    transactions: int = 0


SENT: Final = pa.schema(
    [pa.field(name, pa.string() if name == "topic" else pa.int64()) for name in PublishResult.__struct_fields__]
)
"""What was sent, as a task tells it: the fields of `PublishResult`."""


def sent_rows(sent: Sequence[PublishResult]) -> list[dict[str, Any]]:
    """`sent` as rows of SENT."""
    return [asdict(one) for one in sent]


class Publisher(Protocol):
    """Sends a bucket's records; it can be pickled, and runs in a Spark task or, for a few records, without."""

    def publish(self, plan: PublishPlan, records: Iterator[pa.RecordBatch]) -> Sequence[PublishResult]:
        """Sends `records` (record.RUN, by partition and offset, rejected ones too) and commits the positions.

        Gives one Sent for each target, also for those without a record.
        """
        ...


class Due(NamedTuple):
    """A part of a log of which records leave, and the bucket that sends it."""

    slice: OffsetRange
    bucket: int


def due_of(state: State, plans: Sequence[PublishPlan]) -> list[Due]:
    """What `plans` send, in the order of their targets."""
    logs = state.by_partition()
    due = [target for plan in plans for target in plan.targets if target.start < target.end]
    return [
        Due(between(logs[target.tp], target.start, target.end), target.bucket)
        for target in due
        if _is_sent(target, logs[target.tp])
    ]


def complete(plans: Sequence[PublishPlan], sent: Sequence[PublishResult]) -> tuple[PublishResult, ...]:
    """`sent`, if it answers every target once and to its end; FoldError otherwise."""
    asked = sorted((*target.tp, target.end) for plan in plans for target in plan.targets)
    answered = sorted((one.topic, one.partition, one.end) for one in sent)
    if asked != answered:
        wrong = sorted(set(asked) ^ set(answered))
        raise FoldError(f"The publishing tasks did not answer for what they were asked: {wrong[:3]}.", READ_BACK)
    return tuple(sent)


def _is_sent(target: PublishTarget, log: PartitionLog) -> bool:
    """Whether any record of `target` leaves: without an output topic only rejected ones do."""
    return target.output is not None or any(run.rejected for run in between(log, target.start, target.end).runs)
