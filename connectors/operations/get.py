"""Looks keys up in what a connector keeps: steps L1 to L4 of docs/protocol.md. It changes nothing.

The fields of KeyRecord are those of `keyfold get` and of REST (docs/formats.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec import Struct, structs

from compactor.errors import MissingFileError
from compactor.lookup.latest import OUTLINES, LookUpRoom, asked_for, latest_records
from compactor.lookup.records_at import FileOutlines
from compactor.model.log import PartitionLog
from compactor.model.order import columns_of, values_of
from compactor.model.record import KEY_IDENTITY, RUN, TIMESTAMP_TYPES
from compactor.model.state import CatalogState
from compactor.storage.base import Storage
from connectors.errors import UsageError
from connectors.terminal_text import readable

if TYPE_CHECKING:
    from connectors.config.connector import ConnectorConfig

_SHOWN: Final = frozenset(
    ("offset", "timestamp", "timestamp_type", "key", "value", "headers", "delete_horizon", KEY_IDENTITY)
)
"""The columns that an answer is made of. Each takes 25 to 75 µs to decode; all columns of a run take half as long
again."""

_NAMED: Final = 20
"""Partitions that an error names at most: it is for a line or two of a terminal."""


class KeyRecord(Struct, frozen=True, kw_only=True):
    """The latest record that one partition keeps of a key; times in ms.

    `published`: it is below the published offset. `delete_horizon`: until when a tombstone is kept, None before the
    first clean that meets it. `end`: the answer holds for the source's records below this offset.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    delete_horizon: int | None
    published: bool
    end: int

    def shown(self, *, text: bool) -> dict[str, Any]:
        """Returns the fields as they are encoded; bytes become base64, or with `text` what `readable` gives."""
        fields = structs.asdict(self)
        if text:
            fields["key"], fields["value"] = readable(self.key), readable(self.value)
            fields["headers"] = [(name, readable(value)) for name, value in self.headers]
        return fields


class KeyAnswer(Struct, frozen=True):
    """The records of a look-up, in the order of the keys, and the logs that were asked, as they were then.

    `absent` are the keys of which none of these logs keeps a record, in their order.
    """

    records: tuple[KeyRecord, ...]
    logs: tuple[PartitionLog, ...]
    absent: tuple[bytes, ...]


def get(
    storage: Storage,
    connector: ConnectorConfig,
    state_of: Callable[[], CatalogState],
    keys: Sequence[bytes],
    chosen: Callable[[CatalogState], Collection[PartitionLog]],
    outlines: FileOutlines = OUTLINES,
    most_bytes: int | None = None,
    holding: Callable[[int], None] | None = None,
) -> KeyAnswer:
    """Returns the latest kept record of each of `keys`, in their order, in each log that has one.

    If a key has one winner over all partitions of a topic, only the winner among the asked logs is returned.

    `state_of` gives the catalog's newest state, which is asked for again if a vacuum came between; `chosen` gives the
    logs of it that are asked. `outlines` remember and verify files; `holding` is told how many bytes the records take
    so far.

    Raises StorageError, DataError for a key that has no identity, LookUpError if the records take more than
    `most_bytes`, and what `state_of`, `chosen` and `holding` raise.
    """
    state = state_of()
    identities = identities_of(connector, state, keys)
    while True:
        logs = chosen(state)
        try:
            order = state.record_order if state.is_of_topics else None
            records = list(_records(storage, logs, identities, outlines, LookUpRoom(most_bytes, holding), order))
            present = {identity for identity, _ in records}
            absent = (key for key, identity in zip(keys, identities, strict=True) if identity not in present)
            return KeyAnswer(tuple(_in_order(records, identities)), tuple(logs), tuple(absent))
        except MissingFileError:
            newer = state_of()
            if newer == state:
                raise
            state = newer


def logs_of(state: CatalogState, connector: str, topic: str | None, partition: int | None) -> tuple[PartitionLog, ...]:
    """Returns the logs that a look-up asks: all, or those of a topic, or one. Raises UsageError if there is none."""
    logs = tuple(
        log
        for log in sorted(state.logs, key=lambda log: log.tp)
        if topic in (None, log.topic) and partition in (None, log.partition)
    )
    if not logs:
        raise UsageError(f"Connector {connector} keeps {_named(state, topic, partition)}.", _known(state))
    return logs


def _named(state: CatalogState, topic: str | None, partition: int | None) -> str:
    if not state.logs:
        return "nothing yet"
    if partition is None:
        return f"nothing of topic {topic}"
    return f"no partition {partition}" if topic is None else f"no partition {topic}-{partition}"


def _known(state: CatalogState) -> str:
    """Returns what to name, or to do, instead: some of the partitions that are kept."""
    names = [str(log.tp) for log in sorted(state.logs, key=lambda log: log.tp)]
    if not names:
        return "Run it first."
    more = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"It keeps {', '.join(names[:_NAMED])}{more}."


def identities_of(connector: ConnectorConfig, state: CatalogState, keys: Sequence[bytes]) -> list[bytes]:
    """Returns what each of `keys` is compared by."""
    if state.key_identity is None:
        return list(keys)
    from connectors.chain.idle_identities import IDLE  # converters, which most look-ups do not need
    from connectors.chain.key_identity import compared
    from connectors.placeholders import resolve

    # The file may name another identity by now, which no resync has applied yet.
    spec = structs.replace(connector.chain_spec(), identity=state.key_identity)
    with IDLE.lent(spec, resolve) as identity:
        if identity is None:
            return list(keys)
        identities = [compared(identity, (), key).identity for key in keys]
    return [key if identity is None else identity for key, identity in zip(keys, identities, strict=True)]


def _records(
    storage: Storage,
    logs: Iterable[PartitionLog],
    identities: Sequence[bytes],
    outlines: FileOutlines,
    room: LookUpRoom,
    order: str | None,
) -> Iterator[tuple[bytes, KeyRecord]]:
    """Yields each record with what its key is compared by; with an `order` the one of a key that wins in its topic."""
    wanted = asked_for(pa.array(identities, pa.binary()))
    best: dict[tuple[str, bytes], tuple[Rank, KeyRecord]] = {}
    needed = _SHOWN if order is None else _SHOWN.union(columns_of(order))
    columns = tuple(name for name in RUN.names if name in needed)
    for log in logs:
        table = latest_records(storage, log, wanted, outlines, room, columns)
        if not table.num_rows:
            continue
        ranks = [None] * table.num_rows if order is None else list(_ranks(log, table, order))
        for row, rank in zip(table.to_pylist(), ranks, strict=True):
            identity, record = row["key"] if row[KEY_IDENTITY] is None else row[KEY_IDENTITY], _record(log, row)
            if rank is None:
                yield identity, record
            elif (log.topic, identity) not in best or rank > best[log.topic, identity][0]:
                best[log.topic, identity] = rank, record
    yield from ((identity, record) for (_, identity), (_, record) in best.items())


Rank = tuple[bool, bool, Any, int]
"""By what records of one key in several partitions are compared: whether each is of the source, whether it has a value
to order by, that value, and its partition."""


def _ranks(log: PartitionLog, table: pa.Table, order: str) -> Iterator[Rank]:
    for batch in table.to_batches():
        for offset, value in zip(batch["offset"].to_pylist(), values_of(batch, order).to_pylist(), strict=True):
            yield offset >= 0, value is not None, value or 0 if not isinstance(value, bytes) else value, log.partition


def _record(log: PartitionLog, row: dict[str, Any]) -> KeyRecord:
    return KeyRecord(
        topic=log.topic,
        partition=log.partition,
        offset=row["offset"],
        timestamp=row["timestamp"],
        timestamp_type=TIMESTAMP_TYPES[row["timestamp_type"]],
        key=row["key"],
        value=row["value"],
        headers=tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        delete_horizon=row["delete_horizon"],
        published=row["offset"] < log.published,
        end=log.end,
    )


def _in_order(records: Iterable[tuple[bytes, KeyRecord]], identities: Sequence[bytes]) -> Iterator[KeyRecord]:
    """Yields `records` by the order of `identities`, those of a key as they come."""
    by_identity: dict[bytes, list[KeyRecord]] = {}
    for identity, record in records:
        by_identity.setdefault(identity, []).append(record)
    for identity in dict.fromkeys(identities):
        yield from by_identity.get(identity, ())
