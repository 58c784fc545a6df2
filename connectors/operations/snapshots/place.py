"""Finds the snapshots that a person names: by their location, or by the id or topic in a connector's folder."""

from __future__ import annotations

from itertools import chain, groupby
from pathlib import Path
from typing import Final

from compactor.snapshot import listing
from compactor.storage.base import Storage
from compactor.storage.locations import NO_OPTIONS, open_storage
from connectors.config.connector import ConnectorConfig
from connectors.config.fields import is_folder, store_location
from connectors.config.stores import snapshot_storage, store_options
from connectors.config.worker import WorkerConfig
from connectors.errors import ConfigError, UsageError
from connectors.snapshot_folder import SnapshotFolder, newest_in

_LIST: Final = "keyfold snapshot list CONNECTOR.json lists them, each with its folder."
_DEPTH: Final = 2
"""Folders of a connector's folder above the files of a snapshot: topic and id."""


def place_of(worker: WorkerConfig, connector: ConnectorConfig) -> Storage:
    """Opens the folder of the connector's snapshots. Raises ConfigError without snapshot.location."""
    place = snapshot_storage(worker, connector)
    if place is None:
        raise ConfigError(
            f"Connector {connector.name} has no snapshot.location.", "Set it in the connector file, then try again."
        )
    return place.sub(connector.name)


def list_folders(place: Storage) -> dict[str, list[SnapshotFolder]]:
    """Lists the snapshots in a connector's folder by topic, complete or not, the oldest first. Raises StorageError."""
    parts = (info.path.split("/") for info in place.walk(""))
    named = sorted({(topic, name) for topic, name, *_ in filter(_is_below, parts)})
    return {
        topic: [SnapshotFolder(place.sub(topic), name) for _, name in ids]
        for topic, ids in groupby(named, lambda pair: pair[0])
    }


def _is_below(parts: list[str]) -> bool:
    """Returns whether the path of a file, from a connector's folder on, leads through that of a snapshot."""
    return len(parts) > _DEPTH and listing.is_id(parts[1])


def by_name(place: Storage, name: str) -> SnapshotFolder:
    """Finds the snapshot with the id `name` in a connector's folder, or the newest of the topic `name`.

    Raises UsageError if there is none, StorageError.
    """
    topics = list_folders(place)
    if name in topics and (newest := listing.latest_of(place.sub(name))) is not None:
        return SnapshotFolder(place.sub(name), newest)
    for each in chain.from_iterable(topics.values()):
        if each.id == name:
            return each
    raise UsageError(f'There is neither a snapshot nor a topic "{name}" in {place.location}.', f"See which: {_LIST}")


def by_location(location: str, worker: WorkerConfig | None) -> SnapshotFolder:
    """Finds the snapshot at `location`: its folder, its `data`, or a topic's folder, which stands for its newest.

    `worker` says how object stores are reached; None: as the environment says. Raises UsageError if there is none,
    StorageError.
    """
    try:
        whole = store_location(location)
    except ValueError as error:
        raise UsageError(f"{location} is no place of a snapshot: {error}.", f"Name another: {_LIST}") from None
    if is_folder(location):
        whole = str(Path(whole).resolve())  # `current` is a link
    whole = whole.rstrip("/").removesuffix("/data")
    parent, _, name = whole.rpartition("/")
    options = store_options(worker) if worker is not None else NO_OPTIONS
    if listing.is_id(name):
        return SnapshotFolder(open_storage(parent, options, shared=True), name, name in location)
    return newest_in(open_storage(whole, options, shared=True))
