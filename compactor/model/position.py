"""Where publishing of one partition goes on after a start: pure decisions about the committed position.

The position is committed to the connector's group inside the transaction that carries the records, with
metadata that says whose it is and what it means. The catalog's `published` follows it, so it is only a floor:

    what the group holds                                    what it means
    ours, at `published`                                    go on there
    ours, above, a fold's end                               the catalog did not hear of that commit: it catches up
    ours, above, inside a fold that was being sent          go on there, and end where that fold would have ended
    ours, above the log's end                               the catalog lost commits: ingest first, publish nothing
    nothing, or lower, or written by no keyfold,            floor, and the last record of ours in the output
      or by one for another offset (a tool's copy)
    another catalog's                                       two connectors share a group or an output: an error

The last record of a fold's range is always one of its survivors, so the last source offset in the output
says how far a lost position had come. It is never "first run" while something says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec
from msgspec import Struct

from compactor.errors import PositionError
from compactor.model.log import OutputPoint, PartitionLog
from compactor.model.state import Topic

FORMAT: Final = 1
_NEW_NAME: Final = "go on under a new connector name with a new output topic"
_OVER: Final = (
    "remove what is left of this connector, its output as well, with keyfold delete CONNECTOR.json --outputs: the "
    "next run begins anew"
)


class Position(Struct, frozen=True, kw_only=True):
    """What the group holds for one partition: the next source offset to publish, and what its metadata says.

    `catalog_id` None: no keyfold wrote it. `output_id`: the output topic's id. `output_offset`: everything
    below `offset` is published below it. `fold_end`: the end of the fold that is being sent in parts.
    """

    offset: int
    catalog_id: str | None = None
    output_id: str | None = None
    output_offset: int | None = None
    fold_end: int | None = None


class Unknown(Enum):
    """The output holds records, and none says of a source offset of the partition (output.source.headers.enable)."""

    UNKNOWN = "unknown"


Tail = int | None | Unknown
"""The last source offset of a partition in its output; None: the output holds no record of it."""


class Resolved(Struct, frozen=True, kw_only=True):
    """How publishing of one partition goes on.

    `start`: the next source offset to publish. `found`: what the group holds, for the publish task to find
    again. `fold_end`: the next fold must end there. `output_offset`: goes on being carried until records are
    sent. `publish_end`, `publish_output`: what the catalog has not heard of yet. `hold`: nothing may be
    published, cleaned or snapshotted before the log has reached `start`.
    """

    start: int
    found: int | None
    output_offset: int | None = None
    fold_end: int | None = None
    publish_end: int | None = None
    publish_output: OutputPoint | None = None
    hold: bool = False


class _Metadata(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`offset` is the committed offset itself: None where it was written before that was kept."""

    keyfold: int
    catalog: str
    offset: int | None = None
    output: str | None = None
    output_offset: int | None = None
    fold_end: int | None = None


def encode(position: Position) -> str:
    """The metadata of `position`: JSON, well under 1 kB; the broker refuses requests with much more."""
    metadata = _Metadata(
        keyfold=FORMAT,
        catalog=position.catalog_id or "",
        offset=position.offset,
        output=position.output_id,
        output_offset=position.output_offset,
        fold_end=position.fold_end,
    )
    return msgspec.json.encode(metadata).decode()


def decode(offset: int, metadata: str | None) -> Position:
    """The position of a committed offset; `catalog_id` is None where the metadata is not keyfold's, or of another one.

    A tool may set an offset and carry the old metadata along. Raises PositionError for metadata of a newer format.
    """
    try:
        found = msgspec.json.decode(metadata or "", type=_Metadata)
    except msgspec.DecodeError:
        return Position(offset=offset)
    if found.keyfold != FORMAT:
        raise PositionError(
            f"The committed position {offset} has metadata of format {found.keyfold}; this version knows {FORMAT}.",
            "Run the version of keyfold that wrote it, or a newer one.",
        )
    if found.offset not in (None, offset):
        return Position(offset=offset)
    return Position(
        offset=offset,
        catalog_id=found.catalog,
        output_id=found.output,
        output_offset=found.output_offset,
        fold_end=found.fold_end,
    )


def resolve(
    log: PartitionLog,
    topic: Topic,
    catalog_id: str,
    position: Position | None,
    tail: Callable[[], Tail],
    *,
    connector: str = "",
) -> Resolved:
    """How publishing of `log` goes on from what the group holds; `tail` is asked only where it decides.

    Raises PositionError where going on could lose or repeat records.
    """
    where = f"Group connect-{connector or '<connector>'}, {log.tp}"
    if position is not None and position.catalog_id is not None:
        _check_ours(topic, catalog_id, position, where)
        if position.offset >= log.published:
            return _from_position(log, position)
    return _from_output(log, topic, position, tail, where)


def _check_ours(topic: Topic, catalog_id: str, position: Position, where: str) -> None:
    if position.catalog_id != catalog_id:
        raise PositionError(
            f"{where}: the committed position {position.offset} belongs to catalog {position.catalog_id}, "
            f"this connector's catalog is {catalog_id}.",
            "Point storage.location at the folder of that catalog, or restore it from a backup. Where it is lost, "
            f"{_OVER}.",
        )
    if position.output_id != topic.output_id:
        raise PositionError(
            f"{where}: the committed position {position.offset} counts in output topic id {position.output_id}, "
            f"the catalog publishes to {topic.output} with id {topic.output_id}.",
            f"Restore the storage folder and the output topic that belong together, or {_NEW_NAME}.",
        )


def _from_position(log: PartitionLog, position: Position) -> Resolved:
    """A position of ours at or above the floor is the truth."""
    fold_end = position.fold_end if position.fold_end and position.fold_end > position.offset else None
    reached = fold_end or position.offset
    going_on = Resolved(
        start=position.offset, found=position.offset, output_offset=position.output_offset, fold_end=fold_end
    )
    if reached > log.end:
        return Resolved(start=reached, found=position.offset, output_offset=position.output_offset, hold=True)
    if fold_end is not None or position.offset == log.published:
        return going_on
    output = None if position.output_offset is None else OutputPoint(position.offset, position.output_offset)
    return msgspec.structs.replace(going_on, publish_end=position.offset, publish_output=output)


def _from_output(
    log: PartitionLog, topic: Topic, position: Position | None, tail: Callable[[], Tail], where: str
) -> Resolved:
    """The position is of no use: the catalog's floor, and what the output itself says."""
    last = None if topic.output is None else tail()
    held = f"{where}: {_held(position)}"
    if isinstance(last, Unknown):
        raise _blind(log, topic, held)
    if last is not None:
        _check_tail(log, topic, last, held)
    start = log.published if last is None else max(log.published, last + 1)
    return Resolved(
        start=start,
        found=None if position is None else position.offset,
        output_offset=log.output.output_offset if log.output else None,
        fold_end=log.folded_end if log.folded_end > start else None,
        publish_end=start if start == log.folded_end > log.published else None,
    )


def _held(position: Position | None) -> str:
    if position is None:
        return "there is no committed position"
    kind = (
        "was not committed by keyfold"
        if position.catalog_id is None
        else "is lower than what the catalog has published"
    )
    return f"the committed position {position.offset} {kind}"


def _check_tail(log: PartitionLog, topic: Topic, last: int, held: str) -> None:
    """What the output holds has to be something that the catalog knows it began to send."""
    if not log.may_be_sent:
        raise PositionError(
            f"{held}, the catalog has not begun to publish, but {topic.output}-{log.partition} already holds source "
            f"offset {last}.",
            f"Restore the catalog that published it; or {_anew(topic)}.",
        )
    if last >= log.folded_end:
        raise PositionError(
            f"{held}, and {topic.output}-{log.partition} holds source offset {last}, past the last fold that the "
            f"catalog knows of (it ends at {log.folded_end}).",
            f"Restore the newest copy of the catalog, or {_NEW_NAME}.",
        )


def _anew(topic: Topic) -> str:
    """The catalog has published nothing: it can go, and the next one names its output anew."""
    return f"delete topic {topic.output}, or set another output.topic, and then run keyfold delete CONNECTOR.json"


def _blind(log: PartitionLog, topic: Topic, held: str) -> PositionError:
    """Records that do not say where they come from: only a position of ours could tell what was sent already."""
    records = f"the records in {topic.output}-{log.partition} do not name source offsets of {log.tp}"
    if not log.may_be_sent:
        return PositionError(
            f"{held}, the catalog has not begun to publish, but {records}: all may have been published already.",
            "Restore the storage folder and the group's offsets that belong to this output; or, where nothing of it is "
            f"needed, {_anew(topic)}.",
        )
    return PositionError(
        f"{held}, the catalog has published up to {log.published}, and {records} (output.source.headers.enable=false).",
        f"Restore the group's offsets, or {_NEW_NAME}.",
    )
