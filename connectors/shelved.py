"""A deleted connector's snapshots: which of those in the snapshot location are its own, and how they go.

A snapshot is a catalog's by its mark or its manifest, which name the catalog's id; one that names none is nobody's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec
from msgspec import Struct

from compactor import snapshot
from compactor.storage import MissingFileError, Storage

MARK: Final = "_catalog@keyfold.json"
"""In the folder of a connector and of each snapshot: the catalog that it belongs to."""
_SAYS: Final = (MARK, "_manifest.json", "manifest.json")
_CURRENT: Final = "current"


class _Owned(Struct):
    catalog_id: str | None = None


def of_catalogs(location: Storage | None, connector: str, catalogs: Collection[str]) -> tuple[str, ...]:
    """The paths of all snapshots of `connector` in `location` that are of one of `catalogs`. Raises StorageError."""
    if location is None:
        return ()
    found: dict[str, str | None] = {}
    for info in location.walk(connector):
        folder, _, name = info.path.rpartition("/")
        if name in _SAYS and folder.count("/") == 2:  # connector, topic, snapshot
            found[folder] = found.get(folder) or _catalog_of(location, info.path)
    return tuple(path for path, catalog_id in found.items() if catalog_id in catalogs)


def remove(location: Storage, connector: str, paths: Iterable[str], catalogs: Collection[str]) -> None:
    """Removes the snapshots at `paths`, what leads to them, and what says that the folder is one of `catalogs`' own.

    So the next catalog of that name may take snapshots there. Snapshots of others stay. Raises StorageError.
    """
    for path in paths:
        folder, _, name = path.rpartition("/")
        latest = f"{folder}/{snapshot.LATEST}"
        snapshot.remove(location, path)
        if location.exists(latest) and location.read(latest).strip() == name.encode():
            location.delete(f"{folder}/{_CURRENT}")
            location.delete(latest)
        if not location.list(folder):
            location.delete_folder(folder)
    if _catalog_of(location, f"{connector}/{MARK}") in catalogs:
        location.delete(f"{connector}/{MARK}")
    if not location.list(connector):
        location.delete_folder(connector)


def _catalog_of(location: Storage, path: str) -> str | None:
    """The catalog that the file `path` names; None where there is none, or it cannot be read so."""
    try:
        return msgspec.json.decode(location.read(path), type=_Owned).catalog_id if location.exists(path) else None
    except (MissingFileError, msgspec.DecodeError, UnicodeDecodeError):
        return None
