"""Where a worker keeps what belongs to one connector."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from compactor.errors import StorageError
from compactor.model.state import State
from compactor.storage.base import Storage
from compactor.storage.location import open_storage
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.errors import UsageError

if TYPE_CHECKING:
    from compactor.catalog.catalog import Catalog

_log = structlog.get_logger()


def connector_storage(worker: WorkerConfig, connector: str) -> Storage:
    """The connector's folder in storage.location: catalog/, runs/, checkpoint/, requests/."""
    return open_storage(str(worker.storage_path)).sub(connector)


def warn_of_readers(worker: WorkerConfig, connector: str) -> None:
    """Logs that other accounts may read the connector's records; a folder that is there is never closed to anybody."""
    folder = worker.storage_path / connector
    if all(_is_open(one) for one in (folder, worker.storage_path)):
        _log.warning(
            "others may read what is kept", connector=connector, folder=str(folder), close=f"chmod 700 {folder}"
        )


def _is_open(folder: Path) -> bool:
    """Whether accounts beside the owner's may go into it."""
    try:
        return folder.stat().st_mode & 0o011 != 0
    except OSError:
        return False


def other_snapshots(connector: ConnectorConfig, state: State) -> dict[str, tuple[str, ...]]:
    """The snapshots in the connector's folder that are not of its catalog, by topic; as far as the location answers."""
    if connector.snapshot_path is None:
        return {}
    from compactor.snapshot import listing

    shelf, found = open_storage(str(connector.snapshot_path)), dict[str, tuple[str, ...]]()
    with suppress(StorageError):
        for topic in sorted(state.topics):
            found[topic] = listing.list_others(shelf, state, topic)
    return found


def kept_catalog(storage: Storage, connector: str) -> Catalog:
    """The catalog in `storage`, for a command that is about what it keeps. Raises UsageError where that is nothing."""
    from compactor.catalog.catalog import Catalog

    catalog = Catalog.open(storage, connector)
    if not catalog.state.logs:
        raise UsageError(
            f"Connector {connector} keeps nothing yet: there is no partition of it in {storage.location}.",
            "Run it first: keyfold run CONNECTOR.json --once reads what is there now. If it has run before, its "
            "storage is not here: mount or restore it; docs/operating.md says what to do where it is lost.",
        )
    return catalog
