"""Looks up what is kept of keys and what has to go, and refuses what cannot be erased: step E1 of docs/protocol.md."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from compactor.catalog.catalog import Catalog
from compactor.errors import MissingFileError
from compactor.lookup.latest import asked_for, latest_records
from compactor.model.log import PartitionLog
from compactor.model.record import KEY_IDENTITY, TopicPartition
from compactor.model.state import CatalogState
from compactor.runs import reader
from compactor.runs.scan import between
from compactor.snapshot import pins
from compactor.storage.base import Storage
from connectors.chain.spec import ClassSpec
from connectors.config.connector import ConnectorConfig
from connectors.config.engine_settings import kept_catalog
from connectors.errors import ConfigError, ConflictError, UsageError
from connectors.operations.erase.receipt import BYTES, UNCOMPARED, UNSEARCHED, VALUE, Finding, Tombstone, canonical_key
from connectors.operations.erase.search import TABLE_LEVEL, SearchResult, snapshot_ids
from connectors.operations.erase.tombstones import ToDelete
from connectors.operations.get import identities_of
from connectors.operations.typed_keys import kept_forms
from connectors.placeholders import resolve

_SHORT: Final = 100
"""Bytes of a key that an error has: twice as many digits still are a line or two of a terminal."""
_MOST_COMPARED: Final = 100
"""Rows of snapshots that are compared with what is kept: each opens a file, and wrong bytes show in the first."""


class HeldSnapshot(Struct, frozen=True):
    """A snapshot that has a value of a key (`why` is VALUE), or that cannot be searched (UNSEARCHED)."""

    topic: str
    id: str
    pinned: bool
    why: str

    def goes(self, topics: Collection[str]) -> bool:
        """Returns whether an erasure removes it, if logs of `topics` have a value or a tombstone of a key.

        Without either, a key is more likely misspelt than in a snapshot that cannot be searched: that stays.
        """
        return self.why == VALUE or self.topic in topics


class ErasurePlan(Struct, frozen=True, kw_only=True):
    """What an erasure has to do: values that need a tombstone, tombstones that are there, snapshots that go.

    `unsearched` are snapshots that stay, as no log of their topic has anything of the keys. `tables` are the topics of
    which a table has, or may have, a key. `absent` are the keys that no log has anything of.
    `events` of the values get a delete event of Debezium: their connector makes tombstones of these alone.
    """

    values: tuple[ToDelete, ...]
    events: int
    tombstones: tuple[Tombstone, ...]
    snapshots: tuple[HeldSnapshot, ...]
    unsearched: tuple[HeldSnapshot, ...]
    tables: tuple[str, ...]
    absent: tuple[bytes, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that have a key in logs, snapshots or tables."""
        logs = {each.topic for each in self.values} | {each.topic for each in self.tombstones}
        return tuple(sorted(logs | {each.topic for each in self.snapshots} | set(self.tables)))

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the snapshots that go."""
        return tuple(each.id for each in self.snapshots)


def check_compacts(connector: ConnectorConfig) -> None:
    """Raises ConfigError if no fold removes older values of a key."""
    if "compact" not in connector.cleanup_policy:
        raise ConfigError(
            f"Connector {connector.name} has cleanup.policy=delete: its logs are not folded by key.",
            "Its records go with retention.ms; add compact to cleanup.policy to erase single keys.",
        )


def kept_records(
    storage: Storage, connector: ConnectorConfig, keys: Sequence[bytes], topic: str | None
) -> tuple[CatalogState, list[ToDelete], list[Tombstone]]:
    """Returns the state, the values that its logs (of `topic`) keep of `keys`, and the tombstones.

    Raises UsageError if nothing is kept of the connector or of `topic`; ConflictError if a value is in a topic that is
    closed; StorageError.
    """
    state = kept_catalog(storage, connector.name).state
    if topic is not None and topic not in state.topics:
        raise UsageError(f"Connector {connector.name} keeps no topic {topic}.", f"It keeps {', '.join(state.topics)}.")
    while True:
        try:
            values, tombstones = _latest(storage, connector, state, keys, topic)
            break
        except MissingFileError:
            newer = Catalog.open(storage, connector.name).state
            if newer == state:
                raise
            state = newer
    closed = [each.topic for each in values if state.topics[each.topic].closed is not None]
    if closed:
        raise ConflictError(
            f"Connector {connector.name}: topic {closed[0]} is closed ({state.topics[closed[0]].closed}): no tombstone "
            "of it is read any more.",
            "keyfold resync opens it again if its source is there; --topic leaves it out.",
        )
    return state, values, tombstones


def _latest(
    storage: Storage, connector: ConnectorConfig, state: CatalogState, keys: Sequence[bytes], topic: str | None
) -> tuple[list[ToDelete], list[Tombstone]]:
    identities = identities_of(connector, state, keys)
    numbers = {key: number for number, key in reversed(list(enumerate(identities)))}
    wanted = asked_for(pa.array(identities, pa.binary()))
    values: list[ToDelete] = []
    tombstones: list[Tombstone] = []
    for log in state.logs:
        if topic not in (None, log.topic):
            continue
        for row in latest_records(storage, log, wanted).to_pylist():
            number = numbers[row["key"] if row[KEY_IDENTITY] is None else row[KEY_IDENTITY]]
            if row["value"] is None:
                tombstones.append(_tombstone(log, number, row))
            else:
                values.append(_value(log, number, row))
    return values, tombstones


def _tombstone(log: PartitionLog, number: int, row: dict[str, Any]) -> Tombstone:
    return Tombstone(
        key=number,
        topic=log.topic,
        partition=log.partition,
        offset=row["offset"],
        timestamp_ms=row["timestamp"],
        sent=False,
    )


def _value(log: PartitionLog, number: int, row: dict[str, Any]) -> ToDelete:
    return ToDelete(
        number=number,
        key=row["key"],
        topic=log.topic,
        partition=log.partition,
        offset=row["offset"],
        timestamp_ms=row["timestamp"],
        headers=tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        identity=row[KEY_IDENTITY],
    )


def check_forms(
    storage: Storage,
    connector: ConnectorConfig,
    state: CatalogState,
    keys: Sequence[bytes],
    findings: Iterable[Finding],
    written: ClassSpec,
) -> None:
    """Raises UsageError if a row with an erased key is of a record that is kept under other bytes of that key.

    A tombstone with the given bytes would not delete the record, and the next snapshot would have its row again.
    `findings` are rows in snapshots, of keys of which the logs keep nothing; `written` is the converter of keys. Raises
    StorageError, RegistryError.
    """
    logs = {log.tp: log for log in state.logs}
    for each in islice(findings, _MOST_COMPARED):
        if each.topic is None or each.partition is None or each.offset is None or each.key is None:
            continue
        log = logs.get(TopicPartition(each.topic, each.partition))
        if log is None:
            continue
        for batch in reader.read(storage, between(log, each.offset, each.offset + 1), ("key", "value")):
            for row in batch.to_pylist():
                if row["value"] is not None and _is_same(storage, log, written, keys[each.key], row["key"] or b""):
                    raise UsageError(
                        f"Connector {connector.name} keeps a key under other bytes than those that are given: "
                        f"{each.topic}-{each.partition} at offset {each.offset}. Nothing was done.",
                        f"Give its bytes: {_named(each.topic, each.partition, row['key'])}.",
                    )


def _is_same(storage: Storage, log: PartitionLog, written: ClassSpec, asked: bytes, kept: bytes) -> bool:
    """Returns whether both are one key: by their JSON, or by what the converter writes for the value that is asked."""
    as_json = canonical_key(kept)
    if as_json is not None:
        return as_json == canonical_key(asked)
    return kept in kept_forms(storage, written, [log], [asked], resolve).by_key[asked]


def _named(topic: str, partition: int, key: bytes) -> str:
    """Returns how a key is given if its bytes are not what is asked: as digits, unless these are too many."""
    if len(key) <= _SHORT:
        return f"--hex --key {key.hex()}"
    return f"keyfold dump CONNECTOR.json --topic {topic} --partition {partition} --text prints them"


def held_snapshots(result: SearchResult, place: Storage | None, connector: str) -> tuple[HeldSnapshot, ...]:
    """Returns the snapshots that a search has found keys in, or could not search. Raises StorageError."""
    if place is None:
        return ()
    reasons = dict.fromkeys(snapshot_ids(result, VALUE, UNSEARCHED), UNSEARCHED)
    reasons |= dict.fromkeys(snapshot_ids(result, VALUE), VALUE)
    return tuple(
        HeldSnapshot(topic, name, pins.is_pinned(place, f"{connector}/{topic}/{name}"), why)
        for (topic, name), why in reasons.items()
    )


def held_tables(
    result: SearchResult, topics: Iterable[str], with_key: Collection[str], place: Storage | None, connector: str
) -> Iterator[str]:
    """Yields the `topics` of which a table has a key. One that cannot be searched counts if logs of it are `with_key`.

    Otherwise a misspelt key would take the older versions of a table along.
    """
    if place is None:
        return
    sure = [each.file for each in result.of(TABLE_LEVEL, VALUE, BYTES)]
    maybe = [each.file for each in result.of(TABLE_LEVEL, UNCOMPARED, UNSEARCHED)]
    for topic in topics:
        folder = f"{place.location}/{connector}/{topic}/"
        if any(file.startswith(folder) for file in (*sure, *(maybe if topic in with_key else ()))):
            yield topic


def check_pins(connector: ConnectorConfig, plan: ErasurePlan) -> None:
    """Raises ConflictError if a snapshot that has to go is pinned."""
    pinned = [f"{each.topic}/{each.id}" for each in plan.snapshots if each.pinned]
    if pinned:
        raise ConflictError(
            f"Connector {connector.name}: {len(pinned)} pinned snapshots have, or may have, a key to erase: "
            f"{', '.join(pinned[:20])}.",
            "Nothing was done. --pinned unpins and removes them; a restore that uses one ends with an error then.",
        )
