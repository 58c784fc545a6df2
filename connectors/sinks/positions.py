"""Positions of a connector as its group holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer

from compactor.errors import PositionError
from compactor.model.position import Position, decode
from compactor.model.record import TopicPartition
from connectors.kafka.admin import Admin
from connectors.kafka.groups import Held

AGAIN: Final = "It is tried again from the positions that the group holds."


def read_positions(
    admin: Admin, group: str, partitions: Sequence[TopicPartition], member: Consumer | None = None
) -> dict[TopicPartition, Position | None]:
    """What `group` has committed for each of `partitions`, None where nothing; pending transactions are waited for.

    Asked by `member`, a consumer of it (`groups.member`), or by one for the moment.

    Raises UnreachableError, OutputError (no right to read the group), PositionError (metadata of a newer format).
    """
    return {tp: _position(group, tp, held) for tp, held in admin.committed(group, partitions, member=member).items()}


def moved(
    held: Mapping[TopicPartition, Position | None], expected: Mapping[TopicPartition, int | None], catalog_id: str
) -> list[TopicPartition]:
    """The partitions whose position is not the expected one: another offset, or written for another catalog."""
    return [tp for tp, offset in expected.items() if not _same(held[tp], offset, catalog_id)]


def moved_by(position: Position | None, catalog_id: str, members: Sequence[str]) -> tuple[str, str]:
    """Who moved a position to `position`, as far as it tells, and what to do about it; `members` are the group's."""
    if position is None:
        return "it is gone: it expired, or somebody deleted it", AGAIN
    if position.catalog_id is None:
        named = f"; members of the group are {', '.join(members)}" if members else "; the group has no members now"
        return (
            f"somebody else committed it{named}",
            f"Stop the consumer or the Kafka Connect sink of the same name, or rename this connector. {AGAIN}",
        )
    if position.catalog_id != catalog_id:
        return (
            f"catalog {position.catalog_id} wrote it: a connector of this name with another storage.location",
            "Stop that one, or rename it.",
        )
    return "another publish of this connector committed it", AGAIN


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
