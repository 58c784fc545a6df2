"""Where a worker keeps what belongs to one connector."""

from __future__ import annotations

from pathlib import Path

import structlog

from compactor.location import open_storage
from compactor.storage import Storage
from connectors.config.worker import WorkerConfig

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
