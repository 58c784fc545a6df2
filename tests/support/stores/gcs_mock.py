"""A mock of Google Cloud Storage: S3Proxy behind a proxy that turns Google's headers into Amazon's, and back.

It is no server of Google's, and shows only that keyfold asks as Google's XML API wants to be asked: conditional
creates (`x-goog-if-generation-match: 0`), copies and an object's metadata have names of their own there, the rest is as
in S3.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.stores.faulty_proxy import FaultyProxy
from tests.support.stores.running import BUCKET, RunningStore
from tests.support.stores.s3proxy import s3proxy

_CREATES: Final = ("x-goog-if-generation-match", "0")
_COPY: Final = "x-goog-copy-source", "x-amz-copy-source"
_META: Final = "x-goog-meta-", "x-amz-meta-"


class _GoogleFront(FaultyProxy):
    """Asks S3Proxy what Google's store is asked."""

    def asked(self, headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Returns a request's headers under Amazon's names."""
        found = [(name.lower(), value) for name, value in headers]
        renamed = (_renamed(_renamed(one, *_META), *_COPY) for one in found)
        return [("If-None-Match", "*") if one == _CREATES else one for one in renamed]

    def answered(self, headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Returns an answer's headers under Google's names."""
        return [("x-goog-generation", "1"), *(_renamed((name.lower(), value), *_META[::-1]) for name, value in headers)]


def _renamed(header: tuple[str, str], old: str, new: str) -> tuple[str, str]:
    name, value = header
    return (new + name.removeprefix(old), value) if name.startswith(old) else header


@contextmanager
def gcs_mock(folder: Path) -> Iterator[RunningStore]:
    """Runs one during the block; the log of its server is in `folder`."""
    with s3proxy(folder) as store:
        front = _GoogleFront(store.url)
        try:
            yield RunningStore("gs mock", front.url, f"gs://{BUCKET}", gcs_keys)
        finally:
            front.stop()


def gcs_keys(url: str) -> dict[str, str]:
    """Returns the keys of a worker file for a server that asks for no token."""
    key = {"gcs_base_url": url, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    return {
        "storage.gcs.endpoint": url,
        "storage.gcs.service.account.key": json.dumps(key),
        "storage.gcs.allow.http": "true",
    }
