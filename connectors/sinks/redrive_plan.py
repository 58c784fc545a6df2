"""Decides which dead letters go back to their source, and what a group has to hold of that. Pure.

A position is the offset of the first letter that was left, with what behind it has gone back already: so a letter that
was left stays to be sent, however many behind it are gone, and none is sent twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from connectors.rejection import Stage
from connectors.sinks.letters import Letter

METADATA_MAX: Final = 3_500
"""Characters of a position's metadata; Kafka takes 4,096 bytes (offset.metadata.max.bytes)."""
OTHER_CONNECTOR: Final = "of another connector"
FILTERED: Final = "left by the filters"
TOO_OFTEN: Final = "sent back too often"
NO_SOURCE: Final = "names no source"
GONE: Final = "source topic is gone"
TRANSFORMED: Final = "holds the transformed record"
_DONE: Final = "done:"


class Wanted(Struct, frozen=True):
    """Which letters are to go back. `source` is the topic of letters that name none; None: they are left.

    `partitions` counts those of each source topic that there is. `transforms`: the connector has any.
    """

    connector: str
    partitions: Mapping[str, int]
    source: str | None = None
    topic: str | None = None
    stage: str | None = None
    class_name: str | None = None
    max_redrives: int = 3
    transforms: bool = False


class Place(Struct, frozen=True):
    """Where a letter goes back to; `partition` -1: by its key."""

    topic: str
    partition: int


def decide(letter: Letter, wanted: Wanted) -> Place | str:
    """Returns where a letter goes, or why it is left."""
    said = letter.context
    if said.get("connector.name", wanted.connector) != wanted.connector:
        return OTHER_CONNECTOR
    topic = said.get("topic", wanted.source)
    filters = ((wanted.topic, topic), (wanted.stage, said.get("stage")), (wanted.class_name, said.get("class.name")))
    if any(asked is not None and asked != found for asked, found in filters):
        return FILTERED
    if letter.redrives >= wanted.max_redrives:
        return TOO_OFTEN
    if wanted.transforms and said.get("stage", Stage.KAFKA_PRODUCE.value) == Stage.KAFKA_PRODUCE.value:
        return TRANSFORMED
    return NO_SOURCE if topic is None else _place(topic, said.get("partition", ""), wanted.partitions)


def _place(topic: str, number: str, partitions: Mapping[str, int]) -> Place | str:
    count = partitions.get(topic)
    if count is None:
        return GONE
    return Place(topic, int(number) if number.isdecimal() and int(number) < count else -1)


class Progress(Struct, frozen=True):
    """How far one partition of letters is handled: all below `position`, and the ranges `done` behind it.

    A run notes every letter from the position on, in order; `noted` is behind the last one. What an earlier run has
    sent behind that (`earlier`) stays known. `left`: a letter was left; `last`: the last one has gone.
    """

    position: int
    earlier: tuple[tuple[int, int], ...] = ()
    done: tuple[tuple[int, int], ...] = ()
    noted: int = 0
    left: bool = False
    last: bool = True

    @classmethod
    def of(cls, position: int, metadata: str) -> Progress:
        """Reads what a group holds. Raises ValueError for metadata that is not ours."""
        if not metadata:
            return cls(position)
        pairs = [part.split("-") for part in metadata.removeprefix(_DONE).split(",")]
        if not metadata.startswith(_DONE) or not all(len(one) == 2 and "".join(one).isdecimal() for one in pairs):
            raise ValueError(metadata[:100])
        return cls(position, tuple((int(first), int(end)) for first, end in pairs))

    @property
    def metadata(self) -> str:
        """What is kept beside the position."""
        ahead = [(max(first, self.noted), end) for first, end in self.earlier if end > self.noted]
        ranges = [*self.done, *ahead]
        return _DONE + ",".join(f"{first}-{end}" for first, end in ranges) if ranges else ""

    @property
    def fits(self) -> bool:
        """Whether one more range can be kept."""
        return len(self.metadata) < METADATA_MAX

    def is_done(self, offset: int) -> bool:
        """Returns whether an earlier run has sent a letter."""
        return any(first <= offset < end for first, end in self.earlier)

    def sent(self, offset: int) -> Progress:
        """Notes that a letter is gone."""
        after = replace(self, noted=offset + 1, last=True)
        if not self.left:
            return replace(after, position=offset + 1)
        if self.last and self.done:
            return replace(after, done=(*self.done[:-1], (self.done[-1][0], offset + 1)))
        return replace(after, done=(*self.done, (offset, offset + 1)))

    def kept(self, offset: int) -> Progress:
        """Notes that a letter is left."""
        position = self.position if self.left else offset
        return replace(self, position=position, noted=offset + 1, left=True, last=False)

    def ended(self, end: int) -> Progress:
        """Notes that there is no letter below `end` that was not noted."""
        found = replace(self, noted=max(self.noted, end))
        return found if self.left else replace(found, position=max(self.position, end))
