"""Shuts out the transactional ids that the committed positions name and the catalog does not have.

A catalog that was set back has fewer, and so has one that was rebuilt by a process that ended before step R5: an owner
that knew of more ids may have a transaction open. Code that reads positions to write them again shuts these out first,
as the new positions name the catalog's ids alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compactor.catalog.catalog import Catalog
from compactor.model.position import Position, buckets_of
from compactor.model.record import TopicPartition
from compactor.ports import Broker

Held = Mapping[TopicPartition, Position | None]


def read_shut_out(
    catalog: Catalog, broker: Broker, partitions: Sequence[TopicPartition], fenced: int
) -> tuple[Held, int]:
    """Reads the positions of `partitions`; returns them, and how many ids are initialised by then.

    `fenced`: how many of them, from 0, were before. If positions of this catalog name more, those are initialised, and
    the positions are read again. Raises FencedError if a newer owner is there, and what the broker raises.
    """
    held = broker.positions(partitions)
    named = buckets_of(
        position
        for position in held.values()
        if position is not None and position.catalog_id == catalog.state.catalog_id
    )
    if named <= fenced:
        return held, fenced
    catalog.refresh()  # those of a newer owner are not ours to end
    broker.fence(range(fenced, named))
    return broker.positions(partitions), named
