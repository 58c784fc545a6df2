"""Where a worker keeps what belongs to one connector."""

from __future__ import annotations

from compactor.location import open_storage
from compactor.storage import Storage
from connectors.config.worker import WorkerConfig


def connector_storage(worker: WorkerConfig, connector: str) -> Storage:
    """The connector's folder in storage.location: catalog/, runs/, checkpoint/, requests/."""
    return open_storage(str(worker.storage_path)).sub(connector)
