"""Keeps files as objects of a bucket, as a `Storage`: S3, Google Cloud Storage, Azure, and what speaks their protocols.

A file is an object, which appears whole or not at all, and is durable once its request was answered. A folder is what
keys begin with, so it needs no making. What `create` promises rests on the store alone: on a conditional request that
makes an object only if it is absent. Not every store that speaks S3 keeps that promise; `check_creates` finds out.

Parts of an upload that ended early stay in the bucket, and no listing shows them: the bucket's lifecycle removes
them (docs/operating.md).
"""

# ruff: noqa: D102 - `Storage` says what each method gives

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Final, cast

import pyarrow as pa

from compactor.errors import ForeignContentError, StorageError, UnsupportedStorageError
from compactor.remembered import Remembered
from compactor.storage.base import TEMPORARY, FileInfo, Files, Lock, relative
from compactor.storage.lease import Lease, held_by
from compactor.storage.limits import SMALL_BYTES, ListLimits, check_size
from compactor.storage.object_client import ObjectClient, ObjectInfo, StoreBucket, client_of
from compactor.storage.object_file import ObjectReader, ObjectWriter
from compactor.storage.object_list import LIST_MAX

_TRIALS: Final = f"{TEMPORARY}creates-"
"""What the keys of trials begin with: listings leave out names that begin with `.tmp-`."""

_REPLACED: Final = "keyfoldreplace"
"""The attribute by which a replacement is known again if its answer was lost."""

_REMEMBERED_BYTES: Final = 32 << 20
"""How many bytes of objects a process remembers that it has just written: a small micro-batch is read back at once."""


_LAST: Final = "zzzz"
"""What comes after all names that keyfold gives to the files of snapshots and runs."""

_DELETED: Final = ListLimits(entries=50_000_000, seconds=3_600)
"""What `delete_folder` lists: it holds a page at a time, and a folder of millions of objects must go too."""

_WRITTEN: Final = Remembered[bytes](_REMEMBERED_BYTES)
"""The contents of files, which never change (`Storage.open_output`), by bucket and key. Of this process: storages are
opened and pickled all the time, so that none of them can remember."""


class ObjectStorage:
    """The objects of `bucket` with keys that begin with `folder`."""

    def __init__(self, bucket: StoreBucket, folder: str = "") -> None:
        self._bucket = bucket
        self._folder = folder.strip("/")

    @property
    def bucket(self) -> StoreBucket:
        """The bucket and how it is reached, for libraries that read and write it themselves."""
        return self._bucket

    @property
    def location(self) -> str:
        return self.url("").rstrip("/")

    @property
    def is_folder(self) -> bool:
        return False

    def read(self, path: str, at_most: int = SMALL_BYTES) -> bytes:
        key = self._at(path)
        data = _WRITTEN.get((self._bucket, key))
        if data is None:
            return self._client.get(key, at_most)
        check_size(self._client.url(key), len(data), at_most)
        return data

    def create(self, path: str, data: bytes) -> bool:
        return self._client.create(self._at(path), data)

    def write(self, path: str, data: bytes) -> None:
        self._client.put(self._at(path), data)

    def replace(self, path: str, seen: bytes, data: bytes) -> bool:
        key = self._at(path)
        state = self._client.state(key)
        try:
            if state is None or self._client.get(key, len(seen)) != seen:
                return False
        except ForeignContentError:  # it is longer
            return False
        return self._client.replace(key, data, {_REPLACED: secrets.token_hex(8)}, state)

    @property
    def copies_files(self) -> bool:
        return self._client.copies

    def copy(self, source: str, target: str) -> None:
        key = self._at(target)
        _WRITTEN.drop([(self._bucket, key)])
        self._client.copy(self._at(source), key)

    def link(self, path: str, folder: str) -> bool:  # noqa: ARG002 - there are no links
        return False

    def list(self, folder: str) -> list[str]:
        return sorted(set(self._names(folder)))

    def walk(self, folder: str) -> Files:
        return [info for info in self._files(folder) if not info.is_temporary]

    def unfinished(self, folder: str) -> Files:
        return [info for info in self._files(folder) if info.is_temporary]

    def delete(self, path: str) -> None:
        self.delete_all([path])

    def delete_all(self, paths: Iterable[str]) -> None:
        self._delete([self._at(path) for path in paths])

    def delete_own(self, paths: Iterable[str], is_own: Callable[[bytes], bool]) -> None:  # noqa: ARG002 - see base
        self.delete_all(paths)

    def delete_folder(self, folder: str) -> None:
        for page in self._pages(self._at(folder), _DELETED):
            self._delete([info.key for info in page])

    def exists(self, path: str) -> bool:
        return self._client.head(self._at(path)) is not None or any(True for _ in self._names(path))

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        key = self._at(path)
        data = _WRITTEN.get((self._bucket, key))
        return pa.PythonFile(ObjectReader(self._client, key, size), mode="r") if data is None else pa.BufferReader(data)

    @contextmanager
    def open_output(self, path: str) -> Iterator[IO[bytes]]:
        key = self._at(path)
        writer = ObjectWriter(self._client, key)
        try:
            yield cast("IO[bytes]", writer)
            data = writer.complete()
        except BaseException as error:
            writer.abort(error)
            raise
        if data is not None:
            _WRITTEN.drop([(self._bucket, key)])
            _WRITTEN.put((self._bucket, key), data, len(data))

    def url(self, path: str) -> str:
        return f"{self._bucket.url}/{self._at(path)}"

    def sub(self, *parts: str) -> ObjectStorage:
        return ObjectStorage(self._bucket, self._at("/".join(parts)))

    def lock(self, path: str) -> Lock | None:
        return Lease.take(self._client, self._at(path))

    def locked_by(self, path: str) -> bytes | None:
        return held_by(self._client, self._at(path))

    def check_creates(self) -> None:
        """Creates one object twice: UnsupportedStorageError if the store lets both do so. Nothing of it is left."""
        path = f"{_TRIALS}{secrets.token_hex(8)}"
        try:
            keeps = self.create(path, b"1") and not self.create(path, b"2") and self.read(path) == b"1"
        except StorageError:
            with suppress(StorageError):  # the first error says what is wrong
                self.delete(path)
            raise
        self.delete(path)
        if not keeps:
            raise UnsupportedStorageError(
                f"Storage {self.location}: the store makes an object again that exists, though it was told to "
                "create it only if it is absent (If-None-Match: *). Two workers could both own a connector there.",
                "Choose a store that honours conditional writes, or a version of this one that does.",
            )

    @property
    def _client(self) -> ObjectClient:
        return client_of(self._bucket)

    def _delete(self, keys: Sequence[str]) -> None:
        _WRITTEN.drop((self._bucket, key) for key in keys)
        self._client.delete(keys)

    def _at(self, path: str) -> str:
        return f"{self._folder}/{relative(path)}".strip("/")

    def _files(self, folder: str) -> Files:
        infos = (
            FileInfo(info.key.removeprefix(self._folder).lstrip("/"), info.bytes, info.modified_ms)
            for page in self._pages(self._at(folder), self._lists)
            for info in page
        )
        return sorted(infos, key=lambda info: info.path)

    def _names(self, folder: str) -> Iterator[str]:
        """Yields the names directly in `folder`, some of them more than once.

        One list with a delimiter would be one request for all folders; but obstore gives it as a whole, and so without
        end if the store does.
        """
        budget, inside = self._lists.begin(self.url(folder)), f"{self._at(folder)}/".lstrip("/")
        after: str | None = None
        skipped: set[str] = set()
        with self._client.listing(self._lists.seconds) as listing:
            while True:
                for page in self._client.pages(listing, inside.rstrip("/"), after):
                    names = {info.key.removeprefix(inside).partition("/")[0] for info in page}
                    budget.take(len(names))
                    yield from (name for name in names if name and not name.startswith(TEMPORARY))
                    last, _, below = page[-1].key.removeprefix(inside).partition("/")
                    if below and len(page) == LIST_MAX and last not in skipped and self._client.skips:
                        skipped.add(last)  # the rest of a large folder is passed over, as far as its names are ours
                        after = f"{inside}{last}/{_LAST}"
                        break
                else:
                    return

    def _pages(self, key: str, limits: ListLimits) -> Iterator[Sequence[ObjectInfo]]:
        budget = limits.begin(self._client.url(key))
        with self._client.listing(limits.seconds) as listing:
            for page in self._client.pages(listing, key):
                budget.take(len(page))
                yield page

    @property
    def _lists(self) -> ListLimits:
        return self._client.times.lists
