"""Decides the offset from which publishing of one partition goes on, given the committed position: pure.

The catalog's `published` follows the committed position, so it is only a lower bound:

    what the group holds                                    how publishing goes on
    ours, at `published`                                    from there
    ours, above, a fold's end                               from there; the catalog missed that commit and catches up
    ours, above, inside a fold that was being sent          from there, to the end that the fold had
    ours, above the log's end                               not: the catalog lost commits, ingest comes first
    nothing, or lower, or committed by another tool,        from `published`, or after the last record of ours in the
      or with metadata of another offset                      output, if that is higher
    ours, lower, before a gap that ends at `published`      the same; from there also if the output's records name
                                                              no source offsets, if no fold was begun since
    ours, of an earlier generation                          as without a position: nothing of this one was sent
    ours, of a later generation                             not: the catalog is an older copy
    another catalog's                                       not: two connectors share a group or an output

The last record of a fold's range always survives the fold, so the last source offset in the output says how far
publishing had come when the position was lost. A partition is never taken for a new one while the catalog, the position
or the output says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from compactor.errors import OLDER_COPY, NoCatalogError, PositionError
from compactor.model.log import OutputPoint, PartitionLog, generation_of
from compactor.model.position import Position, ResumePoint, Tail, Unknown
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, Topic

_NEW_NAME: Final = "go on under a new connector name with a new output topic"
_BEGIN_ANEW: Final = (
    "keyfold rebuild CONNECTOR.json makes it anew from the output; or remove what is left of this connector, its "
    "output as well, with keyfold delete CONNECTOR.json --outputs: the next run begins anew"
)

_GOES_ON: Final = "The connector is started again: if a catalog is there that the store has not listed, it goes on."


def resume_point(
    log: PartitionLog,
    topic: Topic,
    catalog_id: str,
    position: Position | None,
    tail: Callable[[], Tail],
    *,
    connector: str = "",
) -> ResumePoint:
    """Decides the offset from which publishing of `log` goes on, given the `position` that the group holds.

    `tail` reads the last source offset in the output; it is called only if it decides. Raises PositionError if
    going on could lose or repeat records.
    """
    where = f"Group connect-{connector or '<connector>'}, {log.tp}"
    if position is not None and position.catalog_id is not None:
        _check_catalog(catalog_id, position, where)
        _check_generation(log, position, where)
        if position.generation == generation_of(log):  # an earlier one counts in what the output was then
            _check_output(topic, position, where)
            if position.offset >= log.published:
                return _from_position(log, position)
    return _from_output(log, topic, position, tail, where)


def no_catalog(connector: str, location: str, tp: TopicPartition, position: Position) -> NoCatalogError:
    """Returns the error of a folder that lists no catalog, though one has committed `position`."""
    return NoCatalogError(
        f"Group connect-{connector}, {tp}: the committed position {position.offset} belongs to catalog "
        f"{position.catalog_id}, and {location} lists no catalog. Nothing was made there.",
        "The connector is started again, and goes on once the catalog is listed. Point storage.location at the folder "
        f"of that catalog, or restore it from a backup. Where it is lost, {_BEGIN_ANEW}.",
    )


def check_catalog(state: CatalogState, log: PartitionLog, position: Position | None) -> None:
    """Raises PositionError if another catalog has committed `position`, as `resume_point` does."""
    if position is not None and position.catalog_id is not None:
        _check_catalog(state.catalog_id, position, f"Group connect-{state.connector}, {log.tp}")


def _check_catalog(catalog_id: str, position: Position, where: str) -> None:
    if position.catalog_id != catalog_id:
        raise PositionError(
            f"{where}: the committed position {position.offset} belongs to catalog {position.catalog_id}, "
            f"this connector's catalog is {catalog_id}.",
            "Point storage.location at the folder of that catalog, or restore it from a backup. Where it is lost, "
            f"{_BEGIN_ANEW}.",
        )


def _check_output(topic: Topic, position: Position, where: str) -> None:
    if position.output_id != topic.output_id:
        raise PositionError(
            f"{where}: the committed position {position.offset} counts in output topic id {position.output_id}, "
            f"the catalog publishes to {topic.output} with id {topic.output_id}.",
            f"Restore the storage folder and the output topic that belong together, or {_NEW_NAME}.",
        )


def _check_generation(log: PartitionLog, position: Position, where: str) -> None:
    if position.generation > generation_of(log):
        raise PositionError(
            f"{where}: the committed position {position.group_offset} is of generation {position.generation}, the "
            f"catalog knows generation {generation_of(log)}: it is an older copy.",
            OLDER_COPY,
        )


def _from_position(log: PartitionLog, position: Position) -> ResumePoint:
    """Returns the resume point for a position of this catalog at or above the catalog's published offset."""
    fold_end = position.fold_end if position.fold_end is not None and position.fold_end > position.offset else None
    reached = fold_end or position.offset
    going_on = ResumePoint(
        start=position.offset, committed=position.offset, output_offset=position.output_offset, fold_end=fold_end
    )
    if reached > log.end:
        return ResumePoint(start=reached, committed=position.offset, output_offset=position.output_offset, hold=True)
    if fold_end is not None or position.offset == log.published:
        return going_on
    output = None if position.output_offset is None else OutputPoint(position.offset, position.output_offset)
    return msgspec.structs.replace(going_on, publish_end=position.offset, publish_output=output)


def _is_before_a_gap(log: PartitionLog, position: Position | None) -> bool:
    """Returns whether all that was published after `position` is a gap, and no fold after the gap was begun.

    The group was not told of the gap: the change of offsets that made it ended before that.
    """
    if position is None or position.catalog_id is None or position.generation != generation_of(log):
        return False
    gaps = (gap for gap in log.gaps if gap.end == log.published == log.folded_end)
    return any(gap.start <= position.offset for gap in gaps)


def _from_output(
    log: PartitionLog, topic: Topic, position: Position | None, tail: Callable[[], Tail], where: str
) -> ResumePoint:
    """Returns the resume point by the published offset and the output's last record, if the position is of no use."""
    last = None if topic.output is None else tail()
    held = f"{where}: {_held(position)}"
    if isinstance(last, Unknown):
        if not _is_before_a_gap(log, position):
            raise _no_source_offsets(log, topic, held)
        last = None
    if last is not None:
        _check_tail(log, topic, last, held)
    start = log.published if last is None else max(log.published, last + 1)
    return ResumePoint(
        start=start,
        committed=None if position is None else position.offset,
        output_offset=log.output.output_offset if log.output else None,
        fold_end=log.folded_end if log.folded_end > start else None,
        publish_end=start if start == log.folded_end > log.published else None,
    )


def _held(position: Position | None) -> str:
    if position is None:
        return "there is no committed position"
    if position.catalog_id is None:
        kind = "was not committed by keyfold"
    elif position.generation > 1:
        kind = f"of generation {position.generation} is not above what the catalog has published"
    else:
        kind = "is lower than what the catalog has published"
    return f"the committed position {position.group_offset} {kind}"


def _check_tail(log: PartitionLog, topic: Topic, last: int, held: str) -> None:
    """Raises PositionError if the output holds more than the catalog knows that it began to send.

    A catalog that has sent nothing may have been made as a list hid the real one: NoCatalogError.
    """
    if not log.may_be_sent:
        raise NoCatalogError(
            f"{held}, the catalog has not begun to publish, but {topic.output}-{log.partition} already holds source "
            f"offset {last}.",
            f"{_GOES_ON} Restore the catalog that published it; or {_delete_anew(topic)}.",
        )
    if last >= log.folded_end:
        raise PositionError(
            f"{held}, and {topic.output}-{log.partition} holds source offset {last}, past the last fold that the "
            f"catalog knows of (it ends at {log.folded_end}).",
            f"Restore the newest copy of the catalog, or {_NEW_NAME}.",
        )


def _delete_anew(topic: Topic) -> str:
    """Returns the action for a catalog that has published nothing, so that it can be deleted."""
    return f"delete topic {topic.output}, or set another output.topic, and then run keyfold delete CONNECTOR.json"


def _no_source_offsets(log: PartitionLog, topic: Topic, held: str) -> PositionError:
    """Returns the error for an output with records that name no source offsets: what was sent is not known."""
    records = f"the records in {topic.output}-{log.partition} do not name source offsets of {log.tp}"
    if not log.may_be_sent:
        return NoCatalogError(
            f"{held}, the catalog has not begun to publish, but {records}: all may have been published already.",
            f"{_GOES_ON} Restore the storage folder and the group's offsets that belong to this output; or, where "
            f"nothing of it is needed, {_delete_anew(topic)}.",
        )
    return PositionError(
        f"{held}, the catalog has published up to {log.published}, and {records} (output.source.headers.enable=false).",
        f"Restore the group's offsets, or {_NEW_NAME}.",
    )
