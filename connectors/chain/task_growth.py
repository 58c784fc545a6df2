"""Counts how much a task makes of its records, and its time: each record is bounded, and a task reads millions.

Of one task, and used by its thread alone: its reader, its chain and its writer tell it what they have done.
"""

from __future__ import annotations

import math
from typing import Final

from connectors.clock import SYSTEM_CLOCK, Clock

GROWTH_MAX: Final = 1 << 30
"""Bytes that a task may write beyond what it has read. 6 bytes may become a record of 900 kB that no compression makes
smaller: a portion of 5,000,000 would take terabytes before anything of it counts. A gibibyte takes some 15 s to be made
and written, as long as a large portion is read, so the end of one and the start of the next cost little then."""
_COMPRESSED: Final = 4
"""As how many bytes that were made one in a file counts. A text of 100 kB that all records share takes 20 bytes of each
in the file, and as much time as any other: 4 GiB are made in some 30 s, in which a large job has the turn of others."""

_ORDERED: Final = 16
"""As how many bytes one counts that records are ordered by: the worker's own process holds those of all tasks of a
portion together, some times over, while it decides which records are late. A gibibyte is 64 MiB of them, 3 million
numbers in a task; texts of 1,000 bytes would be gigabytes, and more than one array of Arrow may have."""


class TaskGrowth:
    """What a task has read and written. If it `is_full`, its read ends early.

    `most`: see GROWTH_MAX. `seconds`: how long it may take from now on. By default neither has an end, for a reader
    that cannot end early.
    """

    def __init__(self, most: float = math.inf, seconds: float = math.inf, clock: Clock = SYSTEM_CLOCK) -> None:
        self._most = most
        self._clock = clock
        self._ends_ms = clock.monotonic_ms() + seconds * 1000  # it may be infinite
        # Arrow bytes that were read, which are more than their file takes if nothing makes them grow.
        self.read = 0
        # Bytes in files, compressed.
        self.written = 0
        # Bytes of keys, values and headers that the chain has made.
        self.made = 0
        # Bytes by which the records are ordered, if a field of theirs is their order.
        self.ordered = 0
        # The last rows of the batch that was read last of which the chain has made nothing, as it was full by then.
        self.unused = 0

    @property
    def is_over(self) -> bool:
        """Whether its time is over."""
        return self._clock.monotonic_ms() >= self._ends_ms

    @property
    def is_full(self) -> bool:
        """Whether more was written, made or ordered by than may be, or its time is over."""
        grown = max(self.written, self.made // _COMPRESSED) - self.read
        return self.is_over or max(grown, _ORDERED * self.ordered) > self._most

    def note_written(self, total: int) -> None:
        """Says that `total` bytes are in files by now."""
        self.written = total
