"""Reads the epoch of a catalog's owner without its state, as every publish does (step 6 of docs/protocol.md)."""

from __future__ import annotations

from compactor.catalog.commits import FOLDER, STOP, is_of_another, list_versions, newest_head
from compactor.catalog.history import ATTEMPTS
from compactor.errors import MissingFileError, ReplacedCatalogError
from compactor.storage.base import Storage


def newest_epoch(storage: Storage, catalog_id: str | None = None) -> int:
    """Reads the epoch of the newest commit in a connector's folder, 0 if there is none: one listing, two small files.

    Raises ReplacedCatalogError if the folder holds another catalog than `catalog_id`, if that is given; StorageError;
    CatalogError if the file is damaged.
    """
    for _ in range(ATTEMPTS):
        listing = list_versions(storage)
        try:
            newest = newest_head(storage, listing)
        except MissingFileError as error:
            failure = error  # overtaken by many commits between the two calls
            continue
        if newest is not None and is_of_another(newest, catalog_id):
            raise ReplacedCatalogError(
                f"{storage.location}/{FOLDER} holds catalog {newest.catalog} now; catalog {catalog_id} is gone.", STOP
            )
        return 0 if newest is None else newest.epoch
    raise failure
