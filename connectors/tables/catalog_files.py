"""Keeps a catalog of Iceberg tables to files that are not the worker's own.

The metadata of a table says which files are its own, and pyiceberg reads, writes and removes whatever that names. Who
answers as a catalog, or may write the files of metadata, could else have any file of this account removed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Self
from urllib.parse import urlparse

from msgspec import Struct
from pyiceberg.catalog import WAREHOUSE_LOCATION
from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, InputStream, OutputFile, load_file_io

from connectors.tables.metadata_bounds import MetadataBudget, MetadataFile
from connectors.tables.stores import is_rest

_STORES: Final = {"gs": "gs", "oss": "oss", "s3": "s3", "s3a": "s3", "s3n": "s3"}
_STORES_OF_AZURE: Final = ("az", "abfs", "abfss", "wasb", "wasbs")
KEPT: Final = "keyfold.kept"
SNAPSHOTS: Final = "keyfold.snapshots"
"""Properties of a catalog that name the worker's own places; they are sent to nobody."""
_SHOWN: Final = 200
"""Characters of a location that a refusal quotes."""
WHOLE_BYTES: Final = 64 << 20
"""Bytes that are read at once of a file of data; who answers as a catalog could else name one that takes all memory."""


class FileBounds(Struct, frozen=True):
    """Which files the metadata of tables may have the worker read, write and remove.

    Those below its `warehouse`, if that is a location, and those in object stores that the worker itself does not keep:
    `kept` is a connector's folder in storage.location, next to which those of others are, `snapshots` is
    snapshot.location; "" is none. In storage.location are none, but for those of a warehouse that lies within it.
    """

    warehouse: str
    kept: str
    snapshots: str

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> FileBounds:
        """Returns the bounds by a catalog's properties, as the worker has given them."""
        warehouse, kept, snapshots = (str(properties.get(name, "")) for name in (WAREHOUSE_LOCATION, KEPT, SNAPSHOTS))
        if warehouse and not _is_location(warehouse):
            # A catalog over REST calls it what it likes, also "team/lake"; for all others it is a path.
            warehouse = "" if is_rest(properties) else os.path.abspath(warehouse)  # noqa: PTH100  # links stay
        return cls(warehouse, kept, snapshots)

    def refusal(self, location: str) -> str | None:
        """Returns why a file that a catalog names is not touched, None if it may be."""
        said = f"the catalog names {location[:_SHOWN]!r}, which"
        place = _place(location)
        if place is None:
            return f"{said} is in no object store"
        storage = (_own_place(self.kept) or ())[:-1]
        warehouse = _place(self.warehouse) if _is_location(self.warehouse) else None
        is_below = _is_in(place, warehouse)
        if storage and _is_in(place, storage) and not (is_below and len(warehouse or ()) > len(storage)):
            return f"{said} is in the worker's storage.location"
        if is_below:
            return None
        below = "iceberg.catalog.warehouse: a location there names what is"
        if place[0] == "file":
            return f"{said} is a file of this machine and not below {below}"
        if _is_in(place, _own_place(self.snapshots)):
            return f"{said} is in snapshot.location and not below {below}"
        return None


class BoundedFiles(FileIO):
    """The files of `inner` within `bounds`: a catalog names what is read, written and removed.

    What is read is metadata of one version of a table, each file as a whole, and bounded in size; `of_data` has others.
    """

    def __init__(self, inner: FileIO, bounds: FileBounds, *, are_data: bool = False) -> None:
        super().__init__(inner.properties)
        self._inner = inner
        self._bounds = bounds
        self._budget = None if are_data else MetadataBudget()

    def of_data(self) -> BoundedFiles:
        """Returns the same with files of data to read: of any size, and read in pieces."""
        return BoundedFiles(self._inner, self._bounds, are_data=True)

    def new_input(self, location: str) -> InputFile:
        """Returns a file that is read. Raises ValueError, also when it is opened."""
        file = self._inner.new_input(self._checked(location))
        return _BoundedInput(file) if self._budget is None else MetadataFile(file, self._budget)

    def new_output(self, location: str) -> OutputFile:
        """Returns a file that is written. Raises ValueError."""
        return self._inner.new_output(self._checked(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Removes a file. Raises ValueError."""
        self._inner.delete(self._checked(location if isinstance(location, str) else location.location))

    def _checked(self, location: str) -> str:
        why = self._bounds.refusal(location)
        if why is not None:
            raise ValueError(why)
        return location


class CatalogFiles(FileIO):
    """The files of metadata that a catalog itself reads and writes, within the bounds of its `properties`.

    pyiceberg makes it, as CATALOG_FILES names it. Some of its catalogs open such files by no method of theirs.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        super().__init__(dict(properties))
        self._bounds = FileBounds.of(properties)
        self._plain = {name: text for name, text in properties.items() if name != PY_IO_IMPL}

    def new_input(self, location: str) -> InputFile:
        """Returns a file that is read. Raises ValueError, also when it is opened."""
        return self._files(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Returns a file that is written. Raises ValueError."""
        return self._files(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Removes a file. Raises ValueError."""
        self._files(location if isinstance(location, str) else location.location).delete(location)

    def _files(self, location: str) -> BoundedFiles:
        return BoundedFiles(load_file_io(self._plain, location), self._bounds)


CATALOG_FILES: Final = {PY_IO_IMPL: f"{CatalogFiles.__module__}.{CatalogFiles.__name__}"}
"""The property of a catalog by which pyiceberg makes them."""


def _is_location(warehouse: str) -> bool:
    """Returns whether a warehouse is a location: a path from the root on, or a URL."""
    return warehouse.startswith("/") or bool(urlparse(warehouse).scheme)


class _BoundedInput(InputFile):
    """The file of `inner`, of which at most WHOLE_BYTES are read at once."""

    def __init__(self, inner: InputFile) -> None:
        super().__init__(inner.location)
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        """Returns whether it is there."""
        return self._inner.exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001,FBT002  # pyiceberg's
        """Opens it; what is larger is read in pieces alone, as Parquet is. Raises what pyiceberg raises."""
        stream: Any = self._inner.open(seekable)
        return stream if stream.size() <= WHOLE_BYTES else _Pieces(stream, self.location)


class _Pieces:
    """A file that is read in pieces of up to WHOLE_BYTES."""

    def __init__(self, stream: Any, location: str) -> None:
        self._stream = stream
        self._location = location

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def read(self, size: int | None = None) -> bytes:
        """Reads a piece. Raises ValueError for one that is too large."""
        if size is None or not 0 <= size <= WHOLE_BYTES:
            raise ValueError(
                f"{self._location[:_SHOWN]!r} has more than the {WHOLE_BYTES:,} bytes that are read at once"
            )
        data: bytes = self._stream.read(size)
        return data


def _place(location: str) -> tuple[str, ...] | None:
    """Returns the parts of a location as pyiceberg reads it: what store or machine it is of, then its folders.

    None if it is neither in an object store nor on this machine, or has a part "..". Links are followed.
    """
    url = urlparse(location)
    if url.scheme in ("", "file"):
        path = f"{url.netloc}{url.path}" if url.scheme else location
        return ("file", *_parts(os.path.realpath(path)))
    store, bucket = _STORES.get(url.scheme), url.netloc
    if url.scheme in _STORES_OF_AZURE:  # CONTAINER@ACCOUNT
        store, bucket = "az", url.netloc.partition("@")[0]
    parts = _parts(url.path)
    return None if store is None or ".." in parts else (f"{store}://{bucket}", *parts)


def _own_place(url: str) -> tuple[str, ...] | None:
    """Returns the parts of a URL of the worker's own storage, in which nothing is escaped; None for ""."""
    scheme, _, rest = url.partition("://")
    if scheme == "file":
        return ("file", *_parts(os.path.realpath(rest)))
    bucket, _, path = rest.partition("/")
    return (f"{scheme}://{bucket}", *_parts(path)) if bucket else None


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _is_in(place: tuple[str, ...], outer: tuple[str, ...] | None) -> bool:
    return outer is not None and place[: len(outer)] == outer
