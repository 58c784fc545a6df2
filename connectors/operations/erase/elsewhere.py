"""Lists the places outside keyfold's files that may have erased keys, and until when by the topics' settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final

from compactor.errors import KeyfoldError
from compactor.model.state import CatalogState
from compactor.settings import FOREVER
from connectors.config.connector import ConnectorConfig
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import ClientSettings
from connectors.operations.erase.receipt import Elsewhere

_COMPACTED: Final = (
    "The brokers' cleaner removes the value once it compacts the partition, within max.compaction.lag.ms if that is "
    "set, and the tombstone delete.retention.ms later."
)
_DELETED: Final = "The brokers remove its segments by retention.ms, a segment (segment.ms) at a time."
_UNKNOWN: Final = "Its settings could not be read."
_REQUEST_S: Final = 3.0
"""How long brokers may take to answer: all is erased by now, and a receipt without times says as much."""


def elsewhere(
    connector: ConnectorConfig, clients: ClientSettings, state: CatalogState, topics: Sequence[str], now_ms: int
) -> tuple[Elsewhere, ...]:
    """Lists the topics that may have the keys, and the readers; brokers that do not answer leave times unknown."""
    outputs = [output for topic in topics if (output := state.topics[topic].output) is not None]
    letters = [connector.dead_letter_topic] if connector.dead_letter_topic else []
    named = [("source", topic) for topic in topics] + [("output", name) for name in outputs]
    named += [("dead letters", name) for name in letters]
    configs = _configs(clients, [name for _, name in named])
    places = [_topic(what, name, configs.get(name), now_ms) for what, name in named]
    return (*places, *_others(connector))


def _configs(clients: ClientSettings, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    try:
        with closing(Admin(clients.admin(), _REQUEST_S)) as admin:
            return admin.topic_configs(sorted(admin.describe(names)))
    except KeyfoldError:
        return {}


def _topic(what: str, name: str, config: Mapping[str, str] | None, now_ms: int) -> Elsewhere:
    if config is None:
        return Elsewhere(what=what, name=name, until_ms=None, note=_UNKNOWN)
    policy = config.get("cleanup.policy", "delete").split(",")
    times = []
    if "delete" in policy and (kept_ms := int(config.get("retention.ms", "-1"))) >= 0:
        times.append(kept_ms + int(config.get("segment.ms", "0")))
    if "compact" in policy and (lag_ms := int(config.get("max.compaction.lag.ms", FOREVER))) < FOREVER:
        times.append(lag_ms + int(config.get("delete.retention.ms", "0")))
    until_ms = min(now_ms + min(times), FOREVER) if times else None
    return Elsewhere(what=what, name=name, until_ms=until_ms, note=_COMPACTED if "compact" in policy else _DELETED)


def _others(connector: ConnectorConfig) -> Iterator[Elsewhere]:
    yield Elsewhere(
        what="readers",
        name=connector.name,
        until_ms=None,
        note="Whoever has read the source, the output, snapshots or tables: keyfold does not know them.",
    )
    if connector.iceberg_catalog:
        yield Elsewhere(
            what="tables",
            name=connector.snapshot_table_name,
            until_ms=None,
            note="Tables in the catalog of iceberg.catalog.*: older versions were removed, files were not searched.",
        )
    yield Elsewhere(
        what="copies",
        name=connector.name,
        until_ms=None,
        note="Backups, older versions of objects in a bucket, free blocks of disks, an earlier snapshot.location.",
    )
