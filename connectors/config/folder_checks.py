"""Tries whether what the files name as places can be written to: folders on this machine, object stores."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from compactor.errors import StorageError
from compactor.storage.base import Storage
from compactor.storage.object_store import ObjectStorage
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault, shown
from connectors.config.fields import is_folder, local_path
from connectors.config.stores import snapshot_storage, worker_storage
from connectors.config.worker import WorkerConfig
from connectors.placeholders import has_placeholder

_TEMPORARY: Final = ".tmp-keyfold-"


def storage_faults(worker: WorkerConfig, *, asks: bool = False) -> tuple[Fault, ...]:
    """Returns a fault if storage.location cannot be written to; an object store is asked only if `asks`."""
    if is_folder(worker.storage_location):
        return _faults("storage.location", worker.storage_path, worker.given)
    return _store_faults("storage.location", worker_storage(worker)) if asks else ()


def check_storage(worker: WorkerConfig) -> None:
    """Raises StorageError if storage.location cannot be written to: nothing has begun yet."""
    if not is_folder(worker.storage_location):
        _check_store(worker_storage(worker))
        return
    for fault in storage_faults(worker):
        raise StorageError(f"storage.location: {fault.text}", "keyfold validate tells whether it can, without a start.")


def snapshot_faults(worker: WorkerConfig, connector: ConnectorConfig, *, asks: bool = False) -> tuple[Fault, ...]:
    """Returns a fault if snapshot.location cannot be written to; an object store is asked only if `asks`."""
    if connector.snapshot_location is None:
        return ()
    if is_folder(connector.snapshot_location):
        return _faults("snapshot.location", local_path(connector.snapshot_location), connector.given)
    storage = snapshot_storage(worker, connector)
    return _store_faults("snapshot.location", storage) if asks and storage is not None else ()


def _store_faults(key: str, storage: Storage) -> tuple[Fault, ...]:
    try:
        _check_store(storage)
    except StorageError as error:
        return (Fault(key, f"{error.message} {error.action}".strip()),)
    return ()


def _check_store(storage: Storage) -> None:
    """Raises StorageError if the store is not reached, refuses, or does not create objects exclusively."""
    if isinstance(storage, ObjectStorage):
        storage.check_creates()


def _faults(key: str, folder: Path, given: Mapping[str, str]) -> tuple[Fault, ...]:
    why = refusal(folder.absolute())
    if why and has_placeholder(given.get(key, "")):
        why = f"{shown(key, given[key])} cannot be made, or not be written to"
    return (Fault(key, f"{why}; name a folder that the account of the worker can make and write to."),) if why else ()


def refusal(folder: Path) -> str | None:
    """Returns why `folder` cannot be made or written to; None if it can. Nothing of the trial is left.

    Permissions do not tell: root has them on what is read-only, and in /proc, in which nothing can be made.
    """
    there = next(place for place in (folder, *folder.parents) if place.exists() or place.is_symlink())
    try:
        tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=there).cleanup()
    except OSError as error:
        what = "cannot be written to" if there == folder else f"cannot be made in {there}"
        return f'"{folder}" {what}: {error.strerror}'
    return None
