"""Reads the epoch of a catalog's owner without its state, as every publish does (step 6 of docs/protocol.md)."""

from __future__ import annotations

from compactor.catalog.commits import (
    Head,
    Listing,
    checkpoint_path,
    head_of,
    is_of_another,
    list_versions,
    newest_damaged,
    read,
)
from compactor.catalog.history import ATTEMPTS
from compactor.errors import DamagedError, MissingFileError
from compactor.storage.base import Storage


def newest_epoch(storage: Storage, catalog_id: str | None = None) -> int:
    """Reads the epoch of the newest commit in a connector's folder, 0 if there is none: one listing, one small file.

    Only of the catalog `catalog_id`, if it is given: commits of a deleted one above are passed over. Raises
    StorageError; CatalogError if the file is damaged.
    """
    for _ in range(ATTEMPTS):
        listing = list_versions(storage)
        try:
            heads = (_head(storage, listing, version) for version in listing.above(0))
            return next((head.epoch for head in heads if catalog_id is None or not is_of_another(head, catalog_id)), 0)
        except MissingFileError as error:
            failure = error  # overtaken by many commits between the two calls
    raise failure


def _head(storage: Storage, listing: Listing, version: int) -> Head:
    """Reads the head of a version, from any of its files that is sound."""
    try:
        return head_of(storage, listing, version)
    except DamagedError as error:
        if version in listing.commits and version in listing.checkpoints:
            return read(storage, checkpoint_path(version), Head)
        raise (newest_damaged(error, version) if version in listing.commits else error) from error
