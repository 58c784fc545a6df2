"""The snapshot location: a storage of its own. If it fails, that holds up snapshots and nothing else.

Several catalogs may share it. A connector's folder has the mark of one catalog: only that catalog's owner takes
snapshots there and moves LATEST. The folder of each snapshot gets the mark of its catalog before its first data file: a
snapshot without that mark, or a manifest that names the catalog, is never removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compactor import backoff
from compactor.decode_errors import UNDECODABLE
from compactor.errors import FoldError, ForeignContentError, SnapshotError, SnapshotStorageError, StorageError
from compactor.json_types import decoded_as
from compactor.model.state import CatalogState
from compactor.snapshot import manifest
from compactor.storage.base import Storage
from compactor.storage.limits import LARGE_BYTES

NOTE: Final = "snapshots.json"
"""In the connector's folder: why no snapshot can be written, for `describe`; absent if they can."""

MARK: Final = "_catalog@keyfold.json"
"""In the folder of a connector and of each snapshot. Readers of Parquet skip it, and no topic can be called so."""

UNKNOWN: Final = "?"


class SnapshotFailure(Struct, frozen=True, kw_only=True):
    """Writing snapshots failed `failures` times in a row since `since_ms`; the next try is at `retry_ms`."""

    since_ms: int
    retry_ms: int
    failures: int
    error: str


class SnapshotBackoff(Struct, frozen=True, kw_only=True):
    """Which topics wait after snapshots have failed: `topics`, or all if that is None; until when: `failure`.

    `failure` is None, and `topics` empty, while none waits.
    """

    failure: SnapshotFailure | None = None
    topics: frozenset[str] | None = frozenset()

    def failed(self, error: SnapshotStorageError | SnapshotError, now_ms: int) -> SnapshotBackoff:
        """Returns the back-off once a snapshot has failed at `now_ms`: the next try is later each time.

        If `error` names topics, these wait; otherwise all of them.
        """
        before = self.failure
        failures = before.failures + 1 if before else 1
        failure = SnapshotFailure(
            since_ms=before.since_ms if before else now_ms,
            retry_ms=backoff.next_try_ms(failures, now_ms),
            failures=failures,
            error=str(error),
        )
        alone = error.topics if isinstance(error, SnapshotError) else None
        return SnapshotBackoff(failure=failure, topics=None if alone is None else alone | (self.topics or frozenset()))

    def succeeded(self, taken: Collection[str], open_topics: Collection[str]) -> SnapshotBackoff:
        """Returns the back-off once snapshots of the topics `taken` have succeeded, of all `open_topics`.

        It is over once none of the open topics waits any more.
        """
        if self.failure is None or not taken:
            return self
        left = (self.topics or frozenset()) & set(open_topics) - set(taken)
        return replace(self, topics=left) if left else SnapshotBackoff()

    def due(self, topics: Collection[str], old: Collection[str], now_ms: int) -> list[str]:
        """Returns which of `topics` are to be taken at `now_ms`: all together once one of them is `old` enough.

        A topic that has failed alone is left out of that: it is taken when it is old itself and its wait is over.
        """
        waiting = self.failure is not None and backoff.waits(self.failure.retry_ms, now_ms)
        if waiting and self.topics is None:
            return []
        alone = self.topics or frozenset()
        together = set(topics) - alone if set(old) - alone else set[str]()
        return sorted(together if waiting else together | (set(old) & alone))


def write_note(storage: Storage, failure: SnapshotFailure | None) -> None:
    """Keeps `failure` in the connector's folder, or removes what was there. Raises StorageError."""
    if failure is None:
        storage.delete(NOTE)
    else:
        storage.write(NOTE, msgspec.json.encode(failure))


def read_note(storage: Storage) -> SnapshotFailure | None:
    """Reads the failure that was noted last and is not over; None too if the note cannot be read as one."""
    if not storage.exists(NOTE):
        return None
    try:
        return decoded_as(storage.read(NOTE), SnapshotFailure)
    except (*UNDECODABLE, ForeignContentError):
        return None


class Mark(Struct, frozen=True, kw_only=True):
    """The catalog that a folder belongs to; `storage` is that catalog's location when it made the mark, for people."""

    format_version: int = 1
    catalog_id: str
    storage: str


def write_mark(place: Storage, folder: str, state: CatalogState, storage: Storage) -> None:
    """Marks `folder` as begun by the catalog of `state`, which is kept in `storage`. Raises StorageError."""
    place.create(f"{folder}/{MARK}", _encoded(state, storage))


def claim(place: Storage, state: CatalogState, storage: Storage) -> None:
    """Marks the connector's folder as its catalog's if it has no mark. Raises SnapshotError if it is another's."""
    folder = state.connector
    mark = _read_mark(place, folder)
    if mark is None and not place.create(f"{folder}/{MARK}", _encoded(state, storage)):
        mark = _read_mark(place, folder)
    if mark is not None and mark.catalog_id != state.catalog_id:
        raise SnapshotError(
            f"Connector {state.connector}: its catalog {state.catalog_id} ({storage.location}) takes no snapshots in "
            f"{place.location}/{folder}: that folder belongs to catalog {mark.catalog_id} ({mark.storage}), and "
            "LATEST can follow one of them only.",
            "Set another snapshot.location for one of both; or, where the other catalog is gone for good, move that "
            f"folder away, or remove its {MARK}: then this connector goes on beside the other's snapshots.",
        )


def owns(place: Storage, state: CatalogState) -> bool:
    """Returns whether the connector's folder has the mark of its catalog."""
    mark = _read_mark(place, state.connector)
    return mark is not None and mark.catalog_id == state.catalog_id


def catalog_of(place: Storage, path: str) -> str | None:
    """Reads the id of the catalog that the folder `path` belongs to, a connector's or a snapshot's, complete or not.

    It is in the mark or, if there is none, in the manifest. None if neither can be read or names a catalog.
    """
    if (mark := _read_mark(place, path)) is not None:
        return None if mark.catalog_id == UNKNOWN else mark.catalog_id
    there = manifest.path_of(place, path)
    try:
        return manifest.decode(place.read(there, LARGE_BYTES)).catalog_id if there else None
    except FoldError:
        return None


def _encoded(state: CatalogState, storage: Storage) -> bytes:
    return msgspec.json.encode(Mark(catalog_id=state.catalog_id, storage=storage.location)) + b"\n"


def _read_mark(place: Storage, folder: str) -> Mark | None:
    """Reads the mark of `folder`; None if it has none, one of an unknown catalog if it cannot be read as one."""
    path = f"{folder}/{MARK}"
    if not place.exists(path):
        return None
    try:
        return decoded_as(place.read(path), Mark)
    except UNDECODABLE:
        return Mark(catalog_id=UNKNOWN, storage=UNKNOWN)


def snapshot_storage(inner: Storage) -> Storage:
    """Returns `inner` with each StorageError as SnapshotStorageError, so that only snapshots wait for it."""
    return cast("Storage", _SnapshotStorage(inner))


class _SnapshotStorage:
    """Has the properties and methods of `inner`; see `snapshot_storage`."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    def __reduce__(self) -> tuple[type[_SnapshotStorage], tuple[Storage]]:
        return _SnapshotStorage, (self._inner,)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return _as_snapshot_error()(value) if callable(value) else value

    def sub(self, *parts: str) -> Storage:
        return snapshot_storage(self._inner.sub(*parts))

    @contextmanager
    def open_output(self, path: str) -> Iterator[IO[bytes]]:
        foreign: StorageError | None = None
        try:
            with self._inner.open_output(path) as stream:
                try:
                    yield stream
                except StorageError as error:  # what is written is read from another store
                    foreign = error
                    raise
        except StorageError as error:
            if error is foreign:
                raise
            raise _snapshot_error(error) from error


@contextmanager
def _as_snapshot_error() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise _snapshot_error(error) from error


def _snapshot_error(error: StorageError) -> SnapshotStorageError:
    return SnapshotStorageError(error.message, error.action.replace("storage.location", "snapshot.location"))
