"""What tests know of an object store that runs: where it answers, its bucket, and how a worker file says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx
from msgspec import Struct

from compactor.storage.locations import StoreOptions
from connectors.config.stores import store_options
from connectors.config.worker import WorkerConfig

BUCKET: Final = "keyfold-tests"


class RunningStore(Struct, frozen=True):
    """A store with one empty bucket.

    `url` is its endpoint, `location` the bucket as storage.location has it, `keys` the keys of a worker file that say
    how it is reached at an endpoint.
    """

    name: str
    url: str
    location: str
    keys: Callable[[str], Mapping[str, str]]

    def worker_keys(self, url: str | None = None) -> dict[str, str]:
        """Returns the keys of a worker file, with the endpoint `url` where a proxy is in between."""
        return dict(self.keys(url or self.url))

    def options(self, url: str | None = None) -> StoreOptions:
        """Returns what these keys come to."""
        read: Any = WorkerConfig
        return store_options(read(**{"bootstrap.servers": "127.0.0.1:1", **self.worker_keys(url)}))


def s3_keys(url: str) -> dict[str, str]:
    """Returns the keys of a worker file for a server that speaks S3 and asks for no certain credentials."""
    return {
        "storage.s3.endpoint": url,
        "storage.s3.region": "us-east-1",
        "storage.s3.access.key.id": "k",
        "storage.s3.secret.access.key": "s",
        "storage.s3.allow.http": "true",
    }


def has_bucket(url: str) -> bool:
    """Makes the bucket of a server that speaks S3; returns whether it answers, and has it."""
    try:
        return httpx.put(f"{url}/{BUCKET}", timeout=5.0).is_success
    except httpx.HTTPError:
        return False
