"""The snapshot location: a store of its own, whose failing holds up snapshots and nothing else."""

# ruff: noqa: D102 - `Storage` says what each method gives

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from compactor import backoff
from compactor.errors import SnapshotError, SnapshotStorageError, StorageError
from compactor.storage.base import Files, Lock, Storage

if TYPE_CHECKING:
    import pyarrow as pa

NOTE: Final = "snapshots.json"
"""In the connector's folder: why no snapshot can be written, for `describe`; absent where they can."""


class SnapshotFailure(Struct, frozen=True, kw_only=True):
    """Writing snapshots failed `failures` times in a row since `since_ms`; the next try is at `retry_ms`."""

    since_ms: int
    retry_ms: int
    failures: int
    error: str


def failed(before: SnapshotFailure | None, error: SnapshotStorageError | SnapshotError, now_ms: int) -> SnapshotFailure:
    """A snapshot failed at `now_ms`: the next try is as late as for a log that is set aside."""
    failures = before.failures + 1 if before else 1
    since_ms = before.since_ms if before else now_ms
    return SnapshotFailure(
        since_ms=since_ms, retry_ms=backoff.next_try_ms(failures, now_ms), failures=failures, error=str(error)
    )


def waits(trouble: SnapshotFailure | None, now_ms: int) -> bool:
    """Whether it is too early for the next try."""
    return trouble is not None and backoff.waits(trouble.retry_ms, now_ms)


def note(storage: Storage, trouble: SnapshotFailure | None) -> None:
    """Keeps `trouble` in the connector's folder, or removes what was there. Raises StorageError."""
    if trouble is None:
        storage.delete(NOTE)
    else:
        storage.write(NOTE, msgspec.json.encode(trouble))


def noted(storage: Storage) -> SnapshotFailure | None:
    """The last trouble that was noted and is not over; None also where the note cannot be read as one."""
    if not storage.exists(NOTE):
        return None
    try:
        return msgspec.json.decode(storage.read(NOTE), type=SnapshotFailure)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class SnapshotStorage:
    """`inner`, whose errors say that they are of the snapshot location."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    @property
    def location(self) -> str:
        return self._inner.location

    def read(self, path: str) -> bytes:
        with _told():
            return self._inner.read(path)

    def create(self, path: str, data: bytes) -> bool:
        with _told():
            return self._inner.create(path, data)

    def write(self, path: str, data: bytes) -> None:
        with _told():
            self._inner.write(path, data)

    def link(self, path: str, folder: str) -> bool:
        with _told():
            return self._inner.link(path, folder)

    def list(self, folder: str) -> list[str]:
        with _told():
            return self._inner.list(folder)

    def walk(self, folder: str) -> Files:
        with _told():
            return self._inner.walk(folder)

    def unfinished(self, folder: str) -> Files:
        with _told():
            return self._inner.unfinished(folder)

    def delete(self, path: str) -> None:
        with _told():
            self._inner.delete(path)

    def delete_folder(self, folder: str) -> None:
        with _told():
            self._inner.delete_folder(folder)

    def exists(self, path: str) -> bool:
        with _told():
            return self._inner.exists(path)

    def open_input(self, path: str) -> pa.NativeFile:
        with _told():
            return self._inner.open_input(path)

    @contextmanager
    def open_output(self, path: str) -> Iterator[IO[bytes]]:
        others: StorageError | None = None
        try:
            with self._inner.open_output(path) as stream:
                try:
                    yield stream
                except StorageError as error:  # what is written is read from another store
                    others = error
                    raise
        except StorageError as error:
            if error is others:
                raise
            raise _of_shelf(error) from error

    def url(self, path: str) -> str:
        return self._inner.url(path)

    def sub(self, *parts: str) -> SnapshotStorage:
        return SnapshotStorage(self._inner.sub(*parts))

    def lock(self, path: str) -> Lock | None:
        with _told():
            return self._inner.lock(path)

    def locked_by(self, path: str) -> bytes | None:
        with _told():
            return self._inner.locked_by(path)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise _of_shelf(error) from error


def _of_shelf(error: StorageError) -> SnapshotStorageError:
    return SnapshotStorageError(error.message, error.action.replace("storage.location", "snapshot.location"))
