"""A deleted connector's snapshots: which of those in the snapshot location are its own, and how they go.

A snapshot is a catalog's by its mark or its manifest, which name the catalog's id; one that names none is nobody's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from compactor.snapshot import manifest, shelfowner, snapshot
from compactor.storage.base import Storage

_TOLD_BY: Final = (shelfowner.NAME, *manifest.NAMES)


def of_catalogs(location: Storage | None, connector: str, catalogs: Collection[str]) -> tuple[str, ...]:
    """The paths of all snapshots of `connector` in `location` that are of one of `catalogs`. Raises StorageError."""
    if location is None:
        return ()
    places = (info.path.rpartition("/") for info in location.walk(connector))
    found = dict.fromkeys(folder for folder, _, name in places if name in _TOLD_BY and _is_snapshot(folder))
    return tuple(path for path in found if shelfowner.catalog_of(location, path) in catalogs)


def remove(location: Storage, connector: str, paths: Iterable[str], catalogs: Collection[str]) -> None:
    """Removes the snapshots at `paths`, LATEST and `current` where they lead there, and the mark of one of `catalogs`.

    Without that mark the next catalog may take snapshots in the folder of `connector`. Snapshots of other catalogs
    stay. Raises StorageError.
    """
    for path in paths:
        folder, _, name = path.rpartition("/")
        latest = f"{folder}/{snapshot.LATEST}"
        snapshot.remove(location, path)
        if location.exists(latest) and location.read(latest).strip() == name.encode():
            location.delete(f"{folder}/{snapshot.CURRENT}")
            location.delete(latest)
        if not location.list(folder):
            location.delete_folder(folder)
    if shelfowner.catalog_of(location, connector) in catalogs:
        location.delete(f"{connector}/{shelfowner.NAME}")
    if not location.list(connector):
        location.delete_folder(connector)


def _is_snapshot(folder: str) -> bool:
    """Whether a folder is where a snapshot would be: <connector>/<topic>/<id>."""
    return folder.count("/") == 2
