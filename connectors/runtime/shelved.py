"""A deleted connector's snapshots: which of those in the snapshot location are its own, and how they go.

A snapshot is a catalog's by its mark or its manifest, which name the catalog's id; one that names none is nobody's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from compactor.snapshot import listing, location, manifest
from compactor.storage.base import Storage

_TOLD_BY: Final = (location.MARK, *manifest.NAMES)


def of_catalogs(place: Storage | None, connector: str, catalogs: Collection[str]) -> tuple[str, ...]:
    """The paths of all snapshots of `connector` in `place` that are of one of `catalogs`. Raises StorageError."""
    if place is None:
        return ()
    places = (info.path.rpartition("/") for info in place.walk(connector))
    found = dict.fromkeys(folder for folder, _, name in places if name in _TOLD_BY and _is_snapshot(folder))
    return tuple(path for path in found if location.catalog_of(place, path) in catalogs)


def remove(place: Storage, connector: str, paths: Iterable[str], catalogs: Collection[str]) -> None:
    """Removes the snapshots at `paths`, LATEST and `current` where they lead there, and the mark of one of `catalogs`.

    Without that mark the next catalog may take snapshots in the folder of `connector`. Snapshots of other catalogs
    stay. Raises StorageError.
    """
    for path in paths:
        folder, _, name = path.rpartition("/")
        latest = f"{folder}/{listing.LATEST}"
        listing.delete(place, path)
        if place.exists(latest) and place.read(latest).strip() == name.encode():
            place.delete(f"{folder}/{listing.CURRENT}")
            place.delete(latest)
        if not place.list(folder):
            place.delete_folder(folder)
    if location.catalog_of(place, connector) in catalogs:
        place.delete(f"{connector}/{location.MARK}")
    if not place.list(connector):
        place.delete_folder(connector)


def _is_snapshot(folder: str) -> bool:
    """Whether a folder is where a snapshot would be: <connector>/<topic>/<id>."""
    return folder.count("/") == 2
