"""Counts by how much a task's records grow on their way into files: each record is bounded, and a task reads millions.

Of one task, and used by its thread alone: its reader, its chain and its writer tell it what they have done.
"""

from __future__ import annotations

import math
from typing import Final

GROWTH_MAX: Final = 1 << 30
"""Bytes that a task may write beyond what it has read. 6 bytes may become a record of 900 kB that no compression makes
smaller: a portion of 5,000,000 would take terabytes before anything of it counts. A gibibyte takes some 15 s to be made
and written, as long as a large portion is read, so the end of one and the start of the next cost little then."""
_COMPRESSED: Final = 4
"""As how many bytes that were made one in a file counts. A text of 100 kB that all records share takes 20 bytes of each
in the file, and as much time as any other: 4 GiB are made in some 30 s, in which a large job has the turn of others."""


class TaskGrowth:
    """What a task has read and written. If it `is_full`, its read ends early.

    `most`: see GROWTH_MAX; by default none, for a reader that cannot end early.
    """

    def __init__(self, most: float = math.inf) -> None:
        self._most = most
        # Arrow bytes that were read, which are more than their file takes if nothing makes them grow.
        self.read = 0
        # Bytes in files, compressed.
        self.written = 0
        # Bytes of keys, values and headers that the chain has made.
        self.made = 0
        # The last rows of the batch that was read last of which the chain has made nothing, as it was full by then.
        self.unused = 0

    @property
    def is_full(self) -> bool:
        """Whether more was written, or made, than may be."""
        return max(self.written, self.made // _COMPRESSED) - self.read > self._most

    def note_written(self, total: int) -> None:
        """Says that `total` bytes are in files by now."""
        self.written = total
