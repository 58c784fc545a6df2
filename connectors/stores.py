"""Where a worker keeps what belongs to one connector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compactor.location import open_storage
from compactor.storage import Storage
from connectors.config.worker import WorkerConfig
from connectors.errors import UsageError

if TYPE_CHECKING:
    from compactor.catalog import Catalog


def connector_storage(worker: WorkerConfig, connector: str) -> Storage:
    """The connector's folder in storage.location: catalog/, runs/, checkpoint/, requests/."""
    return open_storage(str(worker.storage_path)).sub(connector)


def kept_catalog(storage: Storage, connector: str) -> Catalog:
    """The catalog in `storage`, for a command that is about what it keeps. Raises UsageError where that is nothing."""
    from compactor.catalog import Catalog

    catalog = Catalog.open(storage, connector)
    if not catalog.state.logs:
        raise UsageError(
            f"Connector {connector} keeps nothing yet: there is no partition of it in {storage.location}.",
            "Run it first: keyfold run CONNECTOR.json --once reads what is there now.",
        )
    return catalog
