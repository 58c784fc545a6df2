"""Keeps what a worker has to know of its connectors after a restart: those made over REST, and target states.

    .worker/connectors/NAME@<number>.json   name, config and target state of a connector that was made over REST
    .worker/targets/NAME@<number>.json      the target state of a connector of a file, if that is not RUNNING

Both are in the worker's storage.location. Each change is a new version (`versioned_files`), which appears whole or not
at all, and is there after `kill -9`. Secrets stand in them as they were sent: a placeholder as a placeholder. One
worker has them at a time, shown by `.worker/owner.lock`: others on the same storage.location run the connectors of
their files only. One that has lost them and does not know it replaces nothing: it finds a newer version than it knows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from compactor.catalog import owner_lock
from compactor.decode_errors import UNDECODABLE, why
from compactor.errors import StorageError
from compactor.json_types import decoded_as
from compactor.storage.base import Storage
from connectors.config.fields import is_connector_name
from connectors.config.stores import worker_storage
from connectors.config.worker import WorkerConfig
from connectors.runtime.lifecycle import TargetState
from connectors.runtime.specs.versioned_files import VersionedFiles

FOLDER: Final = ".worker"
_CONNECTORS: Final = "connectors"
_TARGETS: Final = "targets"
_FORMAT: Final = 1

_log = structlog.get_logger()


class StoredConnector(Struct, frozen=True, kw_only=True):
    """A connector that was made over REST, as it is kept: `config` as it was sent, placeholders unresolved."""

    format_version: int = _FORMAT
    name: str
    target_state: TargetState = TargetState.RUNNING
    config: dict[str, str]


class _StoredTarget(Struct, frozen=True):
    target_state: TargetState


class StorePatience(Struct, frozen=True):
    """How long changes of a store wait, in seconds."""

    turn_s: float = 5.0
    """For its turn: a store that answers takes far less, and clients wait for 90 s."""
    again_s: float = 5.0
    """Before a store is asked again that has left open whether a change is stored."""


class ConnectorStore:
    """Reads and writes the files of one storage.location. Every method raises StorageError.

    `patience` is for those who change it (`store_ownership.py`).
    """

    def __init__(self, storage: Storage, patience: StorePatience | None = None) -> None:
        self.patience = patience or StorePatience()
        self._storage = storage
        self._connectors = VersionedFiles(storage, _CONNECTORS, is_connector_name)
        self._targets = VersionedFiles(storage, _TARGETS, is_connector_name)
        self._lock = owner_lock.OwnerLock(storage)

    @classmethod
    def of(cls, worker: WorkerConfig) -> ConnectorStore:
        """Opens the store of a worker. Its folder need not exist."""
        return cls(worker_storage(worker).sub(FOLDER))

    @property
    def location(self) -> str:
        """The folder, as it is shown in messages."""
        return self._storage.location

    def claim(self) -> bool:
        """Takes the store for this process; returns whether it has it now."""
        return self._lock.claim(owner_lock.this_process())

    def is_held(self) -> bool:
        """Asks whether this process still has the store: on an object store a lease may have lapsed."""
        return self._lock.is_held()

    def owner(self) -> owner_lock.Owner | None:
        """Reads which process has the store."""
        return owner_lock.live_owner(self._storage)

    def release(self) -> None:
        """Gives the store back, if this process has it."""
        self._lock.release()

    @property
    def is_open(self) -> bool:
        """Whether it is not known of a change whether it is stored, as the storage has not answered."""
        return self._connectors.is_open or self._targets.is_open

    def settle(self) -> None:
        """Finds out for good what became of such changes."""
        for files in (self._connectors, self._targets):
            files.settle()

    def connectors(self) -> Iterator[StoredConnector]:
        """Reads every connector that was made over REST, by name; one that cannot be read is logged and left out."""
        for name, data in self._connectors.read().items():
            try:
                yield _decoded(data, name)
            except UNDECODABLE as error:
                file = self._connectors.path(name)
                _log.error("stored connector cannot be read", file=file, error=why(error))

    def put(self, connector: StoredConnector) -> None:
        """Stores a connector, in place of the one of that name. Raises SupersededError too."""
        self._connectors.write(_checked(connector.name), _encoded(msgspec.to_builtins(connector)))

    def delete(self, name: str) -> None:
        """Removes what is stored of the connector `name`, if anything is. Raises SupersededError too."""
        self._targets.remove(_checked(name))  # first: if the second fails the connector is there as it was
        self._connectors.remove(name)

    def targets(self, names: Collection[str]) -> dict[str, TargetState]:
        """Reads the target states of the connectors `names`, which come from files.

        One is RUNNING if none is stored, or if what is stored is damaged: that is logged.
        """
        stored = self._targets.read([_checked(name) for name in names]) if names else {}
        targets = dict.fromkeys(names, TargetState.RUNNING)
        for name, data in stored.items():
            try:
                targets[name] = decoded_as(data, _StoredTarget).target_state
            except UNDECODABLE as error:
                file = self._targets.path(name)
                _log.error("stored target state cannot be read", file=file, error=why(error))
        return targets

    def files_of(self, name: str) -> tuple[str, ...]:
        """Returns the paths of what is stored of the connector `name`, as they are shown in messages."""
        folders = (self._connectors, self._targets)
        return tuple(files.path(name) for files in folders if name in files.read([_checked(name)]))

    def put_target(self, name: str, state: TargetState) -> None:
        """Stores the target state of the connector `name` of a file; RUNNING is that of a connector without one.

        Raises SupersededError too.
        """
        if state is TargetState.RUNNING:
            self._targets.remove(_checked(name))
        else:
            self._targets.write(_checked(name), _encoded(msgspec.to_builtins(_StoredTarget(state))))

    def forget_removed(self, now_ms: int) -> None:
        """Removes what is left of connectors that were deleted long ago; to be called by who has the store."""
        for files in (self._connectors, self._targets):
            files.forget_removed(now_ms)


def _encoded(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"


def _decoded(data: bytes, name: str) -> StoredConnector:
    """Reads the file of the connector `name`. Raises DecodeError, also if it is another's or of another format."""
    stored = decoded_as(data, StoredConnector)
    if stored.name != name:
        raise msgspec.ValidationError("it holds another connector")
    if stored.format_version != _FORMAT:
        raise msgspec.ValidationError(f"it has format {stored.format_version}, this keyfold reads {_FORMAT}")
    return stored


def _checked(name: str) -> str:
    """Returns `name`, which becomes a part of a path. Raises StorageError if it is no connector's."""
    if not is_connector_name(name):
        raise StorageError(f"{name!r} is no connector's name.", "Choose letters, digits, '.', '_' and '-'.")
    return name
