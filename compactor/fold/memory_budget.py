"""Budgets of folds: how many records, bytes and keys one process may read, and hold in its memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    import pyarrow as pa

    from compactor.runs.scan import OffsetRange

_ROW_BYTES: Final = 64
"""How many bytes a row takes in memory in addition to key, value, headers and the topic's name."""


class MemoryBudget(Struct, frozen=True):
    """Limits of one process: `records`, `bytes` of records or of files, and `files`, how many it reads.

    How many ranges it reads of one file is not limited: partitions that share a row group are taken out of it together.
    """

    records: int
    bytes: int
    files: int = 4_000

    def shared(self, tasks: int) -> MemoryBudget:
        """Returns the share of each of `tasks` that run at once; files cost time, not memory, and are not shared."""
        return replace(self, records=self.records // tasks, bytes=self.bytes // tasks)

    def fits(self, ranges: Sequence[OffsetRange]) -> bool:
        """Returns whether a process with this budget can fold all of `ranges`."""
        pieces = [piece for part in ranges for piece in part.file_ranges]
        files = {piece.file.path: piece.file.file_bytes for piece in pieces}
        records = sum(piece.file.records for piece in pieces)
        rows = sum(piece.file.bytes + piece.file.records * (_ROW_BYTES + len(piece.tp.topic)) for piece in pieces)
        return records <= self.records and len(files) <= self.files and max(rows, sum(files.values())) <= self.bytes


class OffsetMapBudget(Struct, frozen=True):
    """How many keys are held at once, and how many bytes of them; rows that wait to be folded may be as much again.

    `hash_partitions`, a power of `offset_map.HASH_PARTITIONS`, is into how many hash partitions keys may be split.
    `waiting` rows are folded together into the keys that are known; fewer if fewer keys may be held. Rows that come
    from disk are of many keys: as many of them wait as keys may be held, and most are looked at once.
    """

    keys: int
    bytes: int
    hash_partitions: int = 1 << 16
    waiting: int = 2_000_000

    def shared(self, tasks: int) -> OffsetMapBudget:
        """Returns the share of each of `tasks` that run at once."""
        return replace(self, keys=max(1, self.keys // tasks), bytes=max(1, self.bytes // tasks))


# No limit.
ANY: Final = MemoryBudget(records=sys.maxsize, bytes=sys.maxsize, files=sys.maxsize)
NONE: Final = MemoryBudget(records=-1, bytes=-1, files=-1)
"""Not even an empty range fits it."""

READ: Final = MemoryBudget(records=sys.maxsize, bytes=sys.maxsize)
"""How much all publish tasks of a machine read together: they hold a bit of each record, and keys spill to disk if
there are too many."""

TASKS: Final = MemoryBudget(records=4_000_000, bytes=512 << 20)
"""How much all publish tasks of a machine hold together: each its share as files, as rows, and as the rows it keeps."""

KEYS: Final = OffsetMapBudget(keys=4_000_000, bytes=256 << 20)
"""How much all tasks of a machine that read in two passes hold together: each key takes some hundred bytes more
than its own."""


TOGETHER: Final = MemoryBudget(records=500_000, bytes=64 << 20)
"""How much is held of the records to be sent, while the log below is asked once for all of them.

More would take more memory in a task; less asks the log more often."""

COUNTED: Final = MemoryBudget(records=1_000_000, bytes=160 << 20, files=sys.maxsize)
"""How much `analyze` counts in its own process: all of it is in memory at once."""


def local(most_records: int) -> MemoryBudget:
    """Returns the budget of the driver for at most `most_records` records; its memory may be small."""
    return MemoryBudget(records=most_records, bytes=64 << 20)


class FoldBudget(Struct, frozen=True, kw_only=True):
    """What decides how a job is folded.

    `here`: what this process folds in memory. `memory`: what all tasks together fold in memory; more than that they
    read in two passes, up to `read`, with `keys` in their offset maps. What fits none of these is folded by Spark.
    `records`: how many the tasks of a job that cuts them have together; a range with more has a task of its own.
    """

    here: MemoryBudget = NONE
    memory: MemoryBudget = NONE
    read: MemoryBudget = ANY
    keys: OffsetMapBudget = KEYS
    records: int = sys.maxsize

    def shared(self, tasks: int) -> FoldBudget:
        """Returns the share of each of `tasks` that run at once."""
        return replace(
            self,
            memory=self.memory.shared(tasks),
            read=self.read.shared(tasks),
            keys=self.keys.shared(tasks),
            records=self.records // tasks,
        )


def gathered(records: Iterator[pa.RecordBatch], together: MemoryBudget) -> Iterator[list[pa.RecordBatch]]:
    """Gathers batches until they are more than `together` allows, in Arrow bytes; yields them, in their order."""
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in records:
        held.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if size > together.bytes or count > together.records:
            yield held
            held, count, size = [], 0, 0
    if held:
        yield held
