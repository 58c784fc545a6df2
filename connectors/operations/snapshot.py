"""Takes a snapshot of every topic of a connector now: `keyfold snapshot`."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from compactor.json_types import converted_as
from compactor.model.actions import AddSnapshot
from compactor.snapshot import manifest
from compactor.snapshot.manifest import Misfits
from connectors.config.connector import ConnectorConfig
from connectors.config.engine_settings import kept_catalog, other_snapshots
from connectors.config.stores import connector_storage, snapshot_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import ConfigError
from connectors.operations.request_timeout import RequestTimeout
from connectors.operations.worker_request import DEFAULT_TIMEOUT, perform, request
from connectors.runtime.request_handler import SNAPSHOT

NOTHING_TO_SNAPSHOT: Final = "There is nothing to snapshot: of no topic that is read is anything published yet."


class SnapshotInfo(Struct, frozen=True):
    """A snapshot that was taken; `path` is its folder, `bytes` those of its data files.

    `other_snapshots` are the ids of the topic's snapshots that are of another catalog: nothing touches them. `misfits`
    says how many of its records fit no column of a typed snapshot.
    """

    topic: str
    id: str
    path: str
    records: int
    bytes: int
    other_snapshots: tuple[str, ...] = ()
    misfits: tuple[Misfits, ...] = ()


def snapshot(
    worker: WorkerConfig, connector: ConnectorConfig, timeout: RequestTimeout = DEFAULT_TIMEOUT
) -> tuple[SnapshotInfo, ...]:
    """Takes a snapshot of every topic of `connector` at what is published now.

    Raises ConfigError without snapshot.location, UsageError if the connector keeps nothing yet, UnreachableError if a
    live worker does not answer.
    """
    place = snapshot_storage(worker, connector)
    if place is None:
        raise ConfigError(
            f"Connector {connector.name} has no snapshot.location.", "Set it in the connector file, then try again."
        )
    result = perform(worker, connector, request(SNAPSHOT), timeout)
    taken = converted_as(result.get("snapshots", ()), tuple[AddSnapshot, ...])
    state = kept_catalog(connector_storage(worker, connector.name), connector.name).state
    others = other_snapshots(worker, connector, state)
    return tuple(
        SnapshotInfo(
            each.topic,
            each.id,
            f"{place.location}/{each.path}",
            each.records,
            each.bytes,
            others.get(each.topic, ()),
            manifest.misfits(place, each.path),
        )
        for each in taken
    )
