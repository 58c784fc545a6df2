"""The committed position of a source partition: its values, and the codec of its metadata.

The position is committed to the connector's group inside the transaction that carries the records. Its metadata says
which catalog has committed it and what it means. `compactor.publish.resume` decides how publishing goes on from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from compactor.errors import PositionError
from compactor.json_types import decoded_as
from compactor.model.log import OutputPoint

# Formats of metadata: 1 is what a keyfold without generations understands, and is written for the first one.
FORMAT: Final = 1
FORMAT_OF_LATER_GENERATIONS: Final = 2
MOST_BUCKETS: Final = 10_000
"""As many transactional ids a position names at most: a tool may have written it, and each one named is initialised."""


class WinnerRules(NamedTuple):
    """What decides which record of a key wins, and what of it is filled, in the words of the settings."""

    order: str
    scope: str
    fill: str


class Position(Struct, frozen=True, kw_only=True):
    """What the group holds for one partition: the next source offset to publish, and what its metadata says.

    `catalog_id` None: it was not committed by keyfold. `output_id`: id of the output topic. `output_offset`: everything
    below `offset` is published below this offset of the output. `fold_end`: the end of the fold that is being sent in
    several transactions. `generation` is that of the log, `start` the source offset at which it began. `identity`: by
    what the catalog compares keys; None: by their bytes. `winners`: its other rules; None: an older version, which did
    not say. `buckets`: how many transactional ids the catalog had then,
    below which each id is that a partition may have been published by; None: an older version, which did not say.
    `fence` is what truncates have left of the topic, `fence_at` the offset of the last of them in the partition
    (`model.fence`). `late_last` is a digest of the key of the last record below `offset`, if that came late
    (`PartitionLog.late_last`): a tombstone of it that follows is late as well.

    The first offsets of a later generation are below 0 (`PartitionLog.generation`). A group takes no such offset: it
    holds `group_offset`, and the metadata has the other.
    """

    offset: int
    catalog_id: str | None = None
    output_id: str | None = None
    output_offset: int | None = None
    fold_end: int | None = None
    generation: int = 1
    start: int = 0
    identity: str | None = None
    winners: WinnerRules | None = None
    buckets: int | None = None
    fence: bytes | None = None
    fence_at: int | None = None
    late_last: str | None = None

    @property
    def group_offset(self) -> int:
        """The offset that the group holds."""
        return max(self.offset, self.start)


class Unknown(Enum):
    """The output holds records, and none names a source offset of the partition (output.source.headers.enable)."""

    UNKNOWN = "unknown"


Tail = int | None | Unknown
"""The last source offset of a partition in its output; None if the output holds no record of it."""


class ResumePoint(Struct, frozen=True, kw_only=True):
    """The point from which publishing of one partition goes on.

    `start`: the next source offset to publish. `committed`: the offset that the group holds, which a publish must find
    again (None: none). `fold_end`: the offset at which the next fold must end. `output_offset`: what the metadata of
    the next position says until records are sent. `publish_end`, `publish_output`: what was published and is not in the
    catalog yet. `hold`: nothing of the log may be published, cleaned or snapshotted before it has reached `start`.
    """

    start: int
    committed: int | None
    output_offset: int | None = None
    fold_end: int | None = None
    publish_end: int | None = None
    publish_output: OutputPoint | None = None
    hold: bool = False


class _Metadata(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The format on the brokers. `offset` is the committed offset itself; None in metadata of older versions.

    Format 2, of later generations, adds `generation` and `start`; `tombstones` is the offset if that is below 0.
    `identity` says by what keys are compared, if that is not their bytes. `order`, `scope` and `fill` are the
    `WinnerRules`, `buckets` is the number of transactional ids; `fence`, `fence_at` and `late_last` are as there. Older
    versions do not write these, and pass over them.
    """

    keyfold: int
    catalog: str
    offset: int | None = None
    output: str | None = None
    output_offset: int | None = None
    fold_end: int | None = None
    generation: int = 1
    start: int = 0
    tombstones: int | None = None
    identity: str | None = None
    order: str | None = None
    scope: str | None = None
    fill: str | None = None
    buckets: int | None = None
    fence: bytes | None = None
    fence_at: int | None = None
    late_last: str | None = None


def encode(position: Position) -> str:
    """Returns the metadata of `position`: JSON of far less than 4096 bytes (offset.metadata.max.bytes)."""
    winners = position.winners
    metadata = _Metadata(
        keyfold=FORMAT if position.generation == 1 else FORMAT_OF_LATER_GENERATIONS,
        catalog=position.catalog_id or "",
        offset=position.group_offset,
        output=position.output_id,
        output_offset=position.output_offset,
        fold_end=position.fold_end,
        generation=position.generation,
        start=position.start,
        tombstones=position.offset if position.offset < position.start else None,
        identity=position.identity,
        order=None if winners is None else winners.order,
        scope=None if winners is None else winners.scope,
        fill=None if winners is None else winners.fill,
        buckets=None if position.buckets is None else min(position.buckets, MOST_BUCKETS),
        fence=position.fence,
        fence_at=position.fence_at,
        late_last=position.late_last,
    )
    return msgspec.json.encode(metadata).decode()


def decode(offset: int, metadata: str | None) -> Position:
    """Returns the position of a committed offset; its `catalog_id` is None if the metadata is not keyfold's.

    It is None too if the metadata was written for another offset: a tool may set an offset and copy the metadata.
    Raises PositionError for metadata of a newer format.
    """
    try:
        decoded = decoded_as(metadata or "", _Metadata)
    except msgspec.DecodeError:
        return Position(offset=offset)
    if decoded.keyfold not in (FORMAT, FORMAT_OF_LATER_GENERATIONS):
        raise PositionError(
            f"The committed position {offset} has metadata of format {decoded.keyfold}; this version knows {FORMAT} "
            f"and {FORMAT_OF_LATER_GENERATIONS}.",
            "Run the version of keyfold that wrote it, or a newer one.",
        )
    if decoded.offset not in (None, offset):
        return Position(offset=offset)
    return Position(
        offset=offset if decoded.tombstones is None else decoded.tombstones,
        catalog_id=decoded.catalog,
        output_id=decoded.output,
        output_offset=decoded.output_offset,
        fold_end=decoded.fold_end,
        generation=decoded.generation,
        start=decoded.start,
        identity=decoded.identity,
        winners=_winners(decoded),
        buckets=None if decoded.buckets is None or decoded.buckets < 1 else min(decoded.buckets, MOST_BUCKETS),
        fence=decoded.fence,
        fence_at=decoded.fence_at,
        late_last=decoded.late_last,
    )


def _winners(decoded: _Metadata) -> WinnerRules | None:
    if decoded.order is None or decoded.scope is None or decoded.fill is None:
        return None
    return WinnerRules(decoded.order, decoded.scope, decoded.fill)


def buckets_of(positions: Iterable[Position | None]) -> int:
    """Returns how many transactional ids `positions` name, by which their partitions may have been published."""
    return max((position.buckets or 0 for position in positions if position is not None), default=0)
