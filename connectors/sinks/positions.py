"""Positions of a connector as its group holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compactor.errors import PositionError
from compactor.position import Position, decode
from compactor.record import TopicPartition
from connectors.kafka.admin import Admin
from connectors.kafka.groups import Held


def read_positions(
    admin: Admin, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, Position | None]:
    """What `group` has committed for each of `partitions`, None where nothing; pending transactions are waited for.

    Raises UnreachableError, OutputError (no right to read the group), PositionError (metadata of a newer format).
    """
    return {tp: _position(group, tp, held) for tp, held in admin.committed(group, partitions).items()}


def moved(
    held: Mapping[TopicPartition, Position | None], expected: Mapping[TopicPartition, int | None], catalog_id: str
) -> list[TopicPartition]:
    """The partitions whose position is not the expected one: another offset, or written for another catalog."""
    return [tp for tp, offset in expected.items() if not _same(held[tp], offset, catalog_id)]


def _same(position: Position | None, offset: int | None, catalog_id: str) -> bool:
    if position is None or offset is None:
        return position is None and offset is None
    return position.offset == offset and position.catalog_id in (None, catalog_id)


def _position(group: str, tp: TopicPartition, held: Held | None) -> Position | None:
    if held is None:
        return None
    try:
        return decode(*held)
    except PositionError as error:
        raise PositionError(f"Group {group}, {tp}: {error.message}", error.action) from error
