"""Tries whether the folders that the files name can be made and written to on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from compactor.errors import StorageError
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault
from connectors.config.worker import WorkerConfig

_TEMPORARY: Final = ".tmp-keyfold-"


def storage_faults(worker: WorkerConfig) -> tuple[Fault, ...]:
    """Returns a fault where the folder of storage.location cannot be made or written to."""
    return _faults("storage.location", worker.storage_path)


def check_storage(worker: WorkerConfig) -> None:
    """Raises StorageError where the folder of storage.location cannot be made or written to: nothing has begun yet."""
    for fault in storage_faults(worker):
        raise StorageError(f"storage.location: {fault.text}", "keyfold validate tells whether it can, without a start.")


def snapshot_faults(connector: ConnectorConfig) -> tuple[Fault, ...]:
    """Returns a fault where the folder of snapshot.location cannot be made or written to."""
    return _faults("snapshot.location", connector.snapshot_path) if connector.snapshot_path else ()


def _faults(key: str, folder: Path) -> tuple[Fault, ...]:
    why = refusal(folder.absolute())
    return (Fault(key, f"{why}; name a folder that the account of the worker can make and write to."),) if why else ()


def refusal(folder: Path) -> str | None:
    """Returns why `folder` cannot be made or written to; None where it can. Nothing of the trial is left.

    Permissions do not tell: root has them on what is read-only, and in /proc, where nothing can be made.
    """
    there = next(place for place in (folder, *folder.parents) if place.exists() or place.is_symlink())
    try:
        tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=there).cleanup()
    except OSError as error:
        what = "cannot be written to" if there == folder else f"cannot be made in {there}"
        return f'"{folder}" {what}: {error.strerror}'
    return None
