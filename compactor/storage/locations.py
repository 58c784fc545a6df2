"""Opens the storage that a location names: a folder, or a prefix in a bucket of an object store.

/path, path, file:///path                          LocalStorage
s3://BUCKET/PREFIX                                  Amazon S3, and stores that speak its protocol
gs://BUCKET/PREFIX                                  Google Cloud Storage
az://CONTAINER/PREFIX                               Azure Blob Storage, of the account that is set
abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…    the same, of this account
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import UnsupportedStorageError
from compactor.storage.base import Storage
from compactor.storage.limits import StoreTimes
from compactor.storage.local import LocalStorage
from compactor.storage.object_client import StoreBucket
from compactor.storage.object_store import ObjectStorage

SCHEMES: Final = ("file", "s3", "gs", "az", "abfss")
"""The schemes of locations; one without is a path."""

_ALLOWS_HTTP: Final = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_BUCKET: Final = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._$-]*")
"""What a bucket's or container's name may have in any store: it may stand before or after a host's name in a URL, which
a character of URLs would make another host."""
_ABFSS_HOST: Final = re.compile(r"[a-z0-9-]+\.dfs\.core\.windows\.net")


class StoreOptions(Struct, frozen=True):
    """How object stores are reached, by scheme: obstore's names with their values, secrets among them.

    `allow_http`: the schemes of which the endpoint may be one without TLS.
    """

    s3: Mapping[str, str] = {}
    gs: Mapping[str, str] = {}
    az: Mapping[str, str] = {}
    allow_http: frozenset[str] = frozenset()
    times: StoreTimes = StoreTimes()

    def __repr__(self) -> str:
        return "StoreOptions()"


NO_OPTIONS: Final = StoreOptions()
"""What the environment says, as for the clouds' own tools."""


def open_storage(
    location: str,
    options: StoreOptions = NO_OPTIONS,
    *,
    shared: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Storage:
    """Opens the storage at `location`; a folder is made with the first file, a bucket has to be there.

    Of a folder only this account may read what is made there; if it is `shared`, also the accounts that may read the
    folder `location` (none, if keyfold makes that folder). `environ` may allow endpoints without TLS, by the variables
    of the clouds' own tools. Raises StorageError for any other scheme.
    """
    if (fault := location_fault(location)) is not None:
        raise UnsupportedStorageError(
            f"Storage {location!r} is not supported: {fault}.",
            "Give a path, file:///path, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX.",
        )
    if is_local(location):
        path = location if _SCHEME.match(location) is None else unquote(urlsplit(location).path)
        return LocalStorage(path, path if shared else None)
    url = urlsplit(location)
    return ObjectStorage(_bucket(url, options, environ), unquote(url.path))


def is_local(location: str) -> bool:
    """Returns whether `location` names a folder."""
    return _SCHEME.match(location) is None or urlsplit(location).scheme == "file"


def location_fault(location: str) -> str | None:
    """Returns why `location` names no storage; None if it does."""
    if _SCHEME.match(location) is None:
        return None
    url = urlsplit(location)
    if url.scheme == "file":
        return None if url.netloc in ("", "localhost") else "a file: URL has no host; write file:///folder"
    if url.scheme not in SCHEMES:
        return f"keyfold knows no stores of the scheme {url.scheme}:"
    return _bucket_fault(url)


def _bucket_fault(url: SplitResult) -> str | None:
    if url.query or url.fragment or url.password or not url.netloc:
        return "a store is named by SCHEME://BUCKET/PREFIX; credentials have settings of their own"
    if url.scheme == "abfss" and not (url.username and _ABFSS_HOST.fullmatch(url.netloc.rpartition("@")[2])):
        return "write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX, or az:// for any other host"
    if not _BUCKET.fullmatch((url.username or "") if url.scheme == "abfss" else url.netloc):
        return "the name of a bucket has letters, digits, dots, dashes and underscores alone"
    return None


def azure_account(location: str) -> str | None:
    """Returns the account that a location of `abfss:` names; None for any other location."""
    url = urlsplit(location)
    return (url.hostname or "").partition(".")[0] if url.scheme == "abfss" else None


def _bucket(url: SplitResult, options: StoreOptions, environ: Mapping[str, str]) -> StoreBucket:
    if url.scheme != "abfss":
        return _of_scheme(url.scheme, url.netloc, options, environ)
    bucket = _of_scheme("az", url.username or "", options, environ)
    account = (url.hostname or "").partition(".")[0]
    return replace(bucket, options=tuple(sorted({**dict(bucket.options), "account_name": account}.items())))


def _of_scheme(scheme: str, name: str, options: StoreOptions, environ: Mapping[str, str]) -> StoreBucket:
    own: Mapping[str, str] = {"s3": options.s3, "gs": options.gs, "az": options.az}[scheme]
    # obstore does not look at the variable itself once it is given any option of a client.
    named = environ.get(_ALLOWS_HTTP[scheme], "").strip().lower() in {"true", "1"}
    allows_http = named or scheme in options.allow_http
    return StoreBucket(scheme, name, tuple(sorted(own.items())), allows_http, options.times)
