"""Says how the libraries of tables reach catalogs and object stores, by what settings and properties say. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
