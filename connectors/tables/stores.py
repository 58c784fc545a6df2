"""Says how the libraries of tables reach catalogs and object stores, and which files a catalog may name.

What decides are the worker's settings, and properties.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlparse

from msgspec import Struct

from compactor.storage.object_client import StoreBucket

_S3: Final = {
    "endpoint": "s3.endpoint",
    "region": "s3.region",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "virtual_hosted_style_request": "s3.force-virtual-addressing",
}
"""obstore's names of what is set, with pyiceberg's. A role is not among them: pyiceberg takes it by other credentials;
where none are set, it finds those of the environment by itself."""


def names_code(name: str) -> bool:
    """Returns whether pyiceberg runs a class that its property `name` names."""
    return name.startswith("py-") or name.endswith(("-impl", ".impl"))


def delta_options(bucket: StoreBucket | None) -> dict[str, str] | None:
    """Returns the options of `deltalake` for a bucket, None for a folder. Its names are obstore's.

    S3 needs `conditional_put`: a commit is an object that is made only if it is absent.
    """
    if bucket is None:
        return None
    puts = {"conditional_put": "etag"} if bucket.scheme == "s3" else {}
    return {**dict(bucket.options), **puts, "allow_http": str(bucket.allow_http).lower()}


def is_rest(catalog: Mapping[str, str]) -> bool:
    """Returns whether a catalog with these properties is one over REST."""
    return catalog.get("type") == "rest" or catalog.get("uri", "").startswith("http")


def iceberg_properties(bucket: StoreBucket | None, location: str, catalog: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties `catalog`, and how the files of its tables are reached if it does not say that itself.

    Tables are made below `location`, the snapshots' one, if the catalog has no `warehouse`. One over REST knows it.
    """
    place = {} if is_rest(catalog) else {"warehouse": location}
    if bucket is None or bucket.scheme != "s3" or any(name.startswith("s3.") for name in catalog):
        return {**place, **catalog}
    return {**place, **{_S3[name]: text for name, text in bucket.options if name in _S3}, **catalog}


_STORES: Final = {"gs": "gs", "oss": "oss", "s3": "s3", "s3a": "s3", "s3n": "s3"}
_STORES_OF_AZURE: Final = ("az", "abfs", "abfss", "wasb", "wasbs")
KEPT: Final = "keyfold.kept"
SNAPSHOTS: Final = "keyfold.snapshots"
"""Properties of a catalog by which `BoundedRestCatalog` knows them; they are sent to nobody."""
_SHOWN: Final = 200
"""Characters of a location that a refusal quotes."""


class FileBounds(Struct, frozen=True):
    """Which files a catalog may have the worker read, write and remove.

    Those below its `warehouse`, if that is a location, and those in object stores that the worker itself does not keep:
    `kept` is a connector's folder in storage.location, next to which those of others are, `snapshots` is
    snapshot.location; "" is none.
    """

    warehouse: str
    kept: str
    snapshots: str

    def refusal(self, location: str) -> str | None:
        """Returns why a file that a catalog names is not touched, None if it may be."""
        said = f"the catalog names {location[:_SHOWN]!r}, which"
        place = _place(location)
        if place is None:
            return f"{said} is in no object store"
        storage = _place(unquote(self.kept)) if self.kept else None
        if storage is not None and _is_in(place, storage[:-1]):
            return f"{said} is in the worker's storage.location"
        if "/" in self.warehouse and _is_in(place, _place(self.warehouse)):
            return None
        below = "iceberg.catalog.warehouse: a location there names what is"
        if place[0] == "file":
            return f"{said} is a file of this machine and not below {below}"
        if self.snapshots and _is_in(place, _place(unquote(self.snapshots))):
            return f"{said} is in snapshot.location and not below {below}"
        return None


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


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _is_in(place: tuple[str, ...], outer: tuple[str, ...] | None) -> bool:
    return outer is not None and place[: len(outer)] == outer
