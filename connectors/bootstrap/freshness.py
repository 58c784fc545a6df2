"""Says since when a reader is known to have read all that the output had. Pure.

Every question for the ends of the partitions has a time. Once the reader has passed each of these ends, all that the
output had at that time is read: the time becomes that of the reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace


class ReadTime(NamedTuple):
    """A time by both clocks: `wall_ms` since the epoch, and `monotonic_ms`, which no one sets back."""

    wall_ms: int
    monotonic_ms: int


class ReadProgress(Struct, frozen=True):
    """`current`: the latest moment of which all is read; None before the first. `ends` were asked for at `asked`."""

    current: ReadTime | None = None
    asked: ReadTime | None = None
    ends: Mapping[int, int] = {}

    def ask(self, ends: Mapping[int, int], at: ReadTime) -> ReadProgress:
        """Returns this with the `ends` that were asked for at the moment `at`, before the answer came."""
        return replace(self, ends=ends, asked=at)

    def reach(self, reached: Mapping[int, int]) -> ReadProgress:
        """Returns this once a reader has `reached` an offset of each partition, the next to read."""
        if self.asked is None or any(reached.get(partition, 0) < end for partition, end in self.ends.items()):
            return self
        return ReadProgress(current=self.asked)
