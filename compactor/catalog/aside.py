"""Sets aside what a lost catalog has left in its folder, so that another one can begin there."""

from __future__ import annotations

from typing import Final

import structlog

from compactor.catalog.commits import Head, commit_path, content, decoded, list_versions
from compactor.storage.base import Storage

LOST: Final = "lost"
"""The folder of commits that were set aside: nothing reads it."""

_log = structlog.get_logger()


def set_aside(storage: Storage) -> None:
    """Moves commits of which all others are gone into `LOST`, if the catalog's folder holds nothing else.

    The caller holds the connector's ownership, and an operator has said that the catalog is lost: the folder alone
    does not tell that from a disk of which a part is missing. An owner that had made such a commit, and lives, finds
    it gone, and ends. A commit is there twice before it goes, so this may be broken off. Raises StorageError,
    CatalogError.
    """
    listing = list_versions(storage)
    if not listing.is_lost:
        return
    for version in listing.commits:
        path = commit_path(version)
        data = content(storage, path)
        storage.create(f"{LOST}/{version:020d}-{decoded(storage, path, data, Head).commit_id}.json", data)
        storage.delete_own([path], data.__eq__)
        _log.warning("set aside a commit of a lost catalog", location=storage.location, version=version, folder=LOST)
