"""Tells a catalog that lists had left out of its folder from one that has taken the place of ours.

A store may list a folder as empty though a catalog is in it, of which version 1 was trimmed long ago. Who starts then
makes another catalog there. Once the list shows both, that one is below the real one, and is given up: the connector is
started again, and goes on from the real one.
"""

from __future__ import annotations

from typing import Final

from compactor.catalog.commits import Commit, Head, Listing, commit_path, is_of_another, newest_head, read
from compactor.errors import DamagedError, HiddenCatalogError, MissingFileError
from compactor.storage.base import Storage

_STORE: Final = (
    "Nothing is lost: the connector is started again, and goes on from that catalog. See whether storage.location is a "
    "file system, or a store, that shows every file at once."
)


def refuse_hidden(storage: Storage, listing: Listing, commit: Commit) -> None:
    """Raises HiddenCatalogError if `listing` shows an older catalog than that of `commit`, which follows its own.

    A commit of an owner that slept follows nothing (`newest_head`), so what is followed above ours is a whole catalog.
    The first commit has to be there still: a catalog that was deleted has given its number to another one. Raises
    StorageError, CatalogError.
    """
    if listing.newest <= commit.version:
        return
    newest = newest_head(storage, listing)
    if newest is None or not is_of_another(newest, commit.catalog):
        return
    if read(storage, commit_path(commit.version), Head).commit_id == commit.commit_id:
        raise HiddenCatalogError(
            f"{storage.location} listed no catalog as catalog {commit.catalog} was made there, and now lists version "
            f"{newest.version} of catalog {newest.catalog}.",
            _STORE,
        )


def all_gone(storage: Storage, version: int) -> HiddenCatalogError:
    """Returns the error of a folder in which nothing is of a catalog that was at `version`.

    No backup is empty: the disk is not mounted, or the store does not tell. So the connector waits for it.
    """
    return HiddenCatalogError(
        f"Catalog {storage.location} was at version {version}, and nothing of it is there.",
        "See whether storage.location is mounted, or restore the folder: the connector is started again, and goes on "
        "once it is there.",
    )


def was_made_beside(storage: Storage, catalog_id: str) -> bool:
    """Returns whether catalog `catalog_id` was made as a list left another one out: version 1 is still its own.

    Version 1 is one name, so no catalog was made in the folder after it. Raises StorageError.
    """
    try:
        return read(storage, commit_path(1), Head).catalog == catalog_id
    except (MissingFileError, DamagedError):
        return False
