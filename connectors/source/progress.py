"""How far the ranges of one read are, and for how long none of them has moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from confluent_kafka import TopicPartition as Partition
from msgspec.structs import replace

from compactor.model.record import TopicPartition
from connectors.source.arrow_records import statements
from connectors.source.plan import Range

LOOK_S: Final = 1.0


@dataclass
class Cursor:
    """One range being read. `part` is what the next statement will speak of; it was read from `start` on."""

    part: Range
    start: int
    position: int
    records: int = 0
    absent_since: float | None = None
    """When its topic was found unknown, in seconds that only rise; None while it is there."""

    @property
    def finished(self) -> bool:
        """The position has reached the end."""
        return self.position >= self.part.hi

    @property
    def key(self) -> TopicPartition:
        """Whose range it is."""
        return self.part.topic_partition

    @property
    def partition(self) -> Partition:
        """Where a consumer has to go on."""
        return Partition(self.part.topic, self.part.partition, self.position)

    @property
    def read(self) -> tuple[Range, int, int]:
        """What is to be stated of it: the range, where reading it began, how many records it held."""
        return self.part, self.start, self.records

    def skip_to(self, offset: int) -> list[pa.RecordBatch]:
        """Goes on at `offset`, or at the end; what lies between is a gap that the next statement begins with.

        Gives the statement of what was read before the gap, if anything was.
        """
        stated = []
        if self.position > self.start:
            stated = [statements([(replace(self.part, hi=self.position), self.start, self.records)])]
            self.part = replace(self.part, lo=self.position)
        self.start = self.position = min(offset, self.part.hi)
        self.records = 0
        return stated


@dataclass
class Watch:
    """Seconds of waiting without progress; time that a slow reader of ours takes does not count."""

    idle: float = 0.0
    looked: float = 0.0
    doubt: bool = False
    reason: str = ""

    def waited(self, seconds: float, *, moved: bool) -> None:
        """A poll or a look took `seconds`; `moved` says whether any range got further by it."""
        if moved:
            self.idle = self.looked = 0.0
            self.reason = ""
        else:
            self.idle += seconds

    def should_look(self) -> bool:
        """It is time to ask the broker what is wrong."""
        return self.doubt or self.idle - self.looked >= LOOK_S

    def look(self) -> bool:
        """A look begins; True where an error of the consumer asked for it."""
        self.looked = self.idle
        doubt, self.doubt = self.doubt, False
        return doubt
