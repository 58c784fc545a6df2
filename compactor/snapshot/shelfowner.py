"""Whose snapshots lie in a folder of the snapshot location, which several catalogs may share.

The folder of a connector has the mark of one catalog: only that catalog's owner takes snapshots there and moves LATEST.
The folder of each snapshot gets the mark of its catalog before its first data file: a snapshot without that mark, or a
manifest that names the catalog, is never removed.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from compactor.errors import FoldError, MissingFileError, SnapshotError
from compactor.model.state import State
from compactor.snapshot import manifest
from compactor.storage.base import Storage

NAME: Final = "_catalog@keyfold.json"
"""In the folder of a connector and of each snapshot. Readers of Parquet skip it, and no topic can be called so."""

UNKNOWN: Final = "?"


class Mark(Struct, frozen=True, kw_only=True):
    """Which catalog a folder belongs to; `storage` is where that catalog was when it made the mark, for people."""

    format_version: int = 1
    catalog_id: str
    storage: str


def mark(shelf: Storage, folder: str, state: State, storage: Storage) -> None:
    """Marks `folder` as begun by the catalog of `state`, which is kept in `storage`."""
    shelf.create(f"{folder}/{NAME}", _mark(state, storage))


def claim(shelf: Storage, state: State, storage: Storage) -> None:
    """Marks the connector's folder as its catalog's if it has no mark. Raises SnapshotError where it is another's."""
    folder = state.connector
    found = _marked(shelf, folder)
    if found is None and not shelf.create(f"{folder}/{NAME}", _mark(state, storage)):
        found = _marked(shelf, folder)
    if found is not None and found.catalog_id != state.catalog_id:
        raise SnapshotError(
            f"Connector {state.connector}: its catalog {state.catalog_id} ({storage.location}) takes no snapshots in "
            f"{shelf.location}/{folder}: that folder belongs to catalog {found.catalog_id} ({found.storage}), and "
            "LATEST can follow one of them only.",
            "Set another snapshot.location for one of both; or, where the other catalog is gone for good, move that "
            f"folder away, or remove its {NAME}: then this connector goes on beside the other's snapshots.",
        )


def owns(shelf: Storage, state: State) -> bool:
    """Whether the connector's folder is its catalog's."""
    found = _marked(shelf, state.connector)
    return found is not None and found.catalog_id == state.catalog_id


def catalog_of(shelf: Storage, path: str) -> str | None:
    """The id of the catalog that the folder `path` belongs to, a connector's or a snapshot's, complete or not.

    By its mark; where it has none, by its manifest. None where neither can be read, or names a catalog.
    """
    if (found := _marked(shelf, path)) is not None:
        return None if found.catalog_id == UNKNOWN else found.catalog_id
    try:
        return manifest.read(shelf, path).catalog_id
    except (MissingFileError, FoldError):
        return None


def _mark(state: State, storage: Storage) -> bytes:
    return msgspec.json.encode(Mark(catalog_id=state.catalog_id, storage=storage.location)) + b"\n"


def _marked(shelf: Storage, folder: str) -> Mark | None:
    """The mark of `folder`; None where it has none, one of an unknown catalog where it cannot be read as one."""
    path = f"{folder}/{NAME}"
    if not shelf.exists(path):
        return None
    try:
        return msgspec.json.decode(shelf.read(path), type=Mark)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Mark(catalog_id=UNKNOWN, storage=UNKNOWN)
