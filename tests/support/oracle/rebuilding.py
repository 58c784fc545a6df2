"""Says in plain dicts what of a lost catalog its output tells, and which logs have to begin again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from msgspec import UNSET

from compactor.model.position import Position, WinnerRules
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from tests.support.engine import Row, row
from tests.support.memory.journal import OutputRecord, OutputTopic

Positions = Mapping[TopicPartition, Position]


class LostCatalog(NamedTuple):
    """What there is of a catalog once its storage is lost: its positions, and its rules, as these name them."""

    positions: Positions
    winners: WinnerRules
    identity: str | None


def lost_catalog(state: CatalogState, output: OutputTopic) -> LostCatalog | None:
    """Returns what there will be of the catalog of `state`; None if `rebuild` would refuse that.

    It does so if there is no position, or one that is not the catalog's. Without the position of a partition of which
    the output has records, or letters were sent, the next run is refused. With one winner over a topic each output
    partition needs the position of its number.
    """
    held = {tp: position for tp, position in output.positions.items() if position is not None}
    sent = {record.tp for records in output.records.values() for record in records} | {one.tp for one in output.letters}
    if not held or not sent <= held.keys() or any(each.catalog_id != state.catalog_id for each in held.values()):
        return None
    named = {position.winners for position in held.values() if position.winners is not None}
    identities = {position.identity for position in held.values()}
    if len(named) > 1 or len(identities) > 1:
        return None
    counts = {tp.topic: state.topics[tp.topic].outputs for tp in held}
    places = {
        TopicPartition(name, number)
        for name, count in counts.items()
        for number in range(0 if count is UNSET else count)
    }
    if not places <= held.keys():
        return None
    return LostCatalog(held, next(iter(named), state.winners), next(iter(identities)))


def begun_again(positions: Positions, output: OutputTopic, *, of_topics: bool) -> set[TopicPartition]:
    """Returns the partitions of which the generation of the position is not in the output up to its first end."""
    later = {tp: position for tp, position in positions.items() if position.generation > 1}
    again = {tp for tp, position in later.items() if position.offset <= position.start}
    in_fold = {tp for tp, position in positions.items() if position.fold_end is not None}
    topics_in_fold = {tp.topic for tp in in_fold}
    for place, records in output.records.items():
        if place in in_fold or (of_topics and place.topic in topics_in_fold):
            earlier = [
                record
                for record in last_of_each_key(records).values()
                if record.value is not None and record.generation < positions[record.tp].generation
            ]
            again |= {place} if earlier and place in positions else set()
    if not of_topics:
        return again & later.keys()
    topics = {tp.topic for tp in again}
    return {tp for tp in positions if tp.topic in topics}


def last_of_each_key(records: Iterable[OutputRecord]) -> dict[bytes | None, OutputRecord]:
    """Returns the last of `records` of each key."""
    return {record.key: record for record in records}


def earlier_rows(positions: Positions, output: OutputTopic, place: TopicPartition) -> list[Row]:
    """Returns the records by which keys of an output partition live from an earlier generation, as its log has them.

    Their offsets are below 0: the lower, the higher they are in the output.
    """
    lives = (
        one
        for one in last_of_each_key(output.records.get(place, ())).values()
        if one.value is not None and one.tp in positions and one.generation < positions[one.tp].generation
    )
    return [
        row(
            place.partition,
            -1 - one.offset,
            one.key,
            one.value,
            topic=place.topic,
            timestamp=one.timestamp,
            headers=[{"key": name, "value": value} for name, value in one.headers] or None,
        )
        for one in sorted(lives, key=lambda one: -one.offset)
    ]


def last_offsets(positions: Positions, output: OutputTopic, tp: TopicPartition) -> set[int]:
    """Returns the source offsets of the records of `tp`, of its generation, that are the last of their keys."""
    offsets: set[int] = set()
    for place, records in output.records.items():
        if place.topic != tp.topic:
            continue
        counts = [
            record
            for record in records
            if record.tp in positions
            and record.generation == positions[record.tp].generation
            and (record.retires or 0 <= record.source_offset < positions[record.tp].offset)
        ]
        last = last_of_each_key(counts).values()
        offsets |= {record.source_offset for record in last if record.tp == tp and not record.retires}
    return offsets


def outlived(
    there: Iterable[Row], output: OutputTopic, topic: str, identity: Callable[[bytes | None], bytes | None]
) -> set[int]:
    """Returns the offsets of those tombstones among `there` of which the output has the key live, in other bytes.

    Such a tombstone was dropped before the record came that lives: otherwise it would have won, or that record retired
    it.
    """
    places = (records for place, records in output.records.items() if place.topic == topic)
    last = (record for records in places for record in last_of_each_key(records).values())
    live = {identity(record.key) for record in last if record.value is not None}
    return {row["offset"] for row in there if row["value"] is None and identity(row["key"]) in live}
