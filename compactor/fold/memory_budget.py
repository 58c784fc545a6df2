"""How much one process folds: what it may read, and what it may hold in its memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from compactor.runs.scan import OffsetRange

_ROW_BYTES: Final = 64
"""What a row takes in memory beside key, value, headers and the topic's name."""


class MemoryBudget(Struct, frozen=True):
    """So many records, bytes of records or of files, and `parts` of files, as they are read one after the other."""

    records: int
    bytes: int
    parts: int = 4_000

    def shared(self, tasks: int) -> MemoryBudget:
        """What each of `tasks` beside one another has of it; parts cost time, not memory."""
        return replace(self, records=self.records // tasks, bytes=self.bytes // tasks)

    def holds(self, slices: Sequence[OffsetRange]) -> bool:
        """Whether a process that has it can fold all of `slices`."""
        file_ranges = [one for part in slices for one in part.file_ranges]
        files = {one.file.path: one.file.file_bytes for one in file_ranges}
        records = sum(one.file.records for one in file_ranges)
        rows = sum(one.file.bytes + one.file.records * (_ROW_BYTES + len(one.tp.topic)) for one in file_ranges)
        return (
            records <= self.records and len(file_ranges) <= self.parts and max(rows, sum(files.values())) <= self.bytes
        )


class OffsetMapBudget(Struct, frozen=True):
    """How many keys are held at once, and how many bytes of them; rows that wait to be folded may be as much again.

    `classes`, a power of `keyclasses.CLASSES`, is into how many keys may be told apart.
    """

    keys: int
    bytes: int
    classes: int = 1 << 16

    def shared(self, tasks: int) -> OffsetMapBudget:
        """What each of `tasks` beside one another has of it."""
        return replace(self, keys=max(1, self.keys // tasks), bytes=max(1, self.bytes // tasks))


TASKS: Final = MemoryBudget(records=4_000_000, bytes=512 << 20)
"""What all publish tasks of a machine hold together: each has it as files, as rows, and as the rows that are left."""

READ: Final = MemoryBudget(records=sys.maxsize, bytes=sys.maxsize)
"""What all of them read together: of each record they hold a bit, and keys go to disk where there are too many."""

KEYS: Final = OffsetMapBudget(keys=4_000_000, bytes=256 << 20)
"""What all tasks of a machine that read in two passes hold together: of each key some hundred bytes beside its own."""


def local(most_records: int) -> MemoryBudget:
    """The driver's, which may have little memory."""
    return MemoryBudget(records=most_records, bytes=64 << 20)
