"""What publishing is told and tells, whichever process does it: plans, one a bucket, and what was sent.

`publishlocal` carries out in this process what is little, `publishtasks` in a task for each bucket what a task's memory
holds, `publishjob` folds any amount on Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import FoldError
from compactor.log import PartitionLog
from compactor.reading import Slice, between
from compactor.record import OfPartition
from compactor.state import State

READ_BACK: Final = "This is a defect of keyfold; what is in doubt is read back before anything else is sent."


class Room(Struct, frozen=True):
    """What a process folds in its memory: so many records, and bytes of records or of files, at most.

    Nor from more parts of files: they are read one after the other.
    """

    records: int
    bytes: int
    parts: int = 4_000

    def shared(self, tasks: int) -> Room:
        """Of a machine's room what each of `tasks` has."""
        return replace(self, records=self.records // tasks, bytes=self.bytes // tasks)


TASKS: Final = Room(records=4_000_000, bytes=512 << 20)
"""What all publish tasks of a machine hold together: each has it as files, as rows, and as rows that are left."""

_ROW_BYTES: Final = 64
"""What a row takes in memory beside key, value, headers and the topic's name."""


def local_room(most_records: int) -> Room:
    """The driver's, which may have little memory."""
    return Room(records=most_records, bytes=64 << 20)


class Target(OfPartition, Struct, frozen=True, kw_only=True):
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


class BucketPlan(Struct, frozen=True, kw_only=True):
    """What one transactional id does next, and on whose behalf."""

    bucket: int
    epoch: int
    catalog_id: str
    targets: tuple[Target, ...]


class Sent(OfPartition, Struct, frozen=True, kw_only=True):
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


class Publisher(Protocol):
    """Sends a bucket's records; it can be pickled, and runs in a Spark task or, for a few records, without."""

    def publish(self, plan: BucketPlan, records: Iterator[pa.RecordBatch]) -> Sequence[Sent]:
        """Sends `records` (record.RUN, by partition and offset, rejected ones too) and commits the positions.

        Gives one Sent for each target, also for those without a record.
        """
        ...


class Due(NamedTuple):
    """A part of a log of which records leave, and the bucket that sends it."""

    slice: Slice
    bucket: int


def due_of(state: State, plans: Sequence[BucketPlan]) -> list[Due]:
    """What `plans` send, in the order of their targets."""
    logs = state.by_partition()
    due = [target for plan in plans for target in plan.targets if target.start < target.end]
    return [
        Due(between(logs[target.tp], target.start, target.end), target.bucket)
        for target in due
        if _is_sent(target, logs[target.tp])
    ]


def fits(due: Sequence[Due], room: Room) -> bool:
    """Whether a process that has `room` can fold all of `due` in its memory."""
    parts = [extent.file for one in due for extent in one.slice.extents]
    whole = {part.path: part.file_bytes for part in parts}
    return (
        sum(part.records for part in parts) <= room.records
        and len(parts) <= room.parts
        and max(_row_bytes(due), sum(whole.values())) <= room.bytes
    )


def _row_bytes(due: Sequence[Due]) -> int:
    """What the records of `due` take in memory."""
    return sum(
        extent.file.bytes + extent.file.records * (_ROW_BYTES + len(extent.tp.topic))
        for one in due
        for extent in one.slice.extents
    )


def complete(plans: Sequence[BucketPlan], sent: Sequence[Sent]) -> tuple[Sent, ...]:
    """`sent`, if it answers every target once and to its end; FoldError otherwise."""
    asked = sorted((*target.tp, target.end) for plan in plans for target in plan.targets)
    answered = sorted((one.topic, one.partition, one.end) for one in sent)
    if asked != answered:
        wrong = sorted(set(asked) ^ set(answered))
        raise FoldError(f"The publishing tasks did not answer for what they were asked: {wrong[:3]}.", READ_BACK)
    return tuple(sent)


def _is_sent(target: Target, log: PartitionLog) -> bool:
    """Whether any record of `target` leaves: without an output topic only rejected ones do."""
    return target.output is not None or any(run.rejected for run in between(log, target.start, target.end).runs)
