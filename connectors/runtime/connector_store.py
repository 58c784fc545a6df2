"""Keeps what a worker has to know of its connectors after a restart: those made over REST, and target states.

    .worker/connectors/NAME.json   name, config and target state of a connector that was made over REST
    .worker/targets/NAME.json      the target state of a connector of a file, where that is not RUNNING

Both are in the worker's storage.location. Each file appears whole or not at all, and is there after `kill -9`. Secrets
stand in them as they were sent: a placeholder as a placeholder. One worker has them at a time, shown by
`.worker/owner.lock`: others on the same storage.location run the connectors of their files only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from compactor.catalog import owner_lock
from compactor.errors import StorageError
from compactor.storage.base import Storage
from connectors.config.fields import is_connector_name
from connectors.config.stores import worker_storage
from connectors.config.worker import WorkerConfig

FOLDER: Final = ".worker"
_CONNECTORS: Final = "connectors"
_TARGETS: Final = "targets"
_FORMAT: Final = 1

_log = structlog.get_logger()


class TargetState(StrEnum):
    """What a connector is to be (Kafka Connect's `TargetState`, KIP-875)."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class StoredConnector(Struct, frozen=True, kw_only=True):
    """A connector that was made over REST, as it is kept: `config` as it was sent, placeholders unresolved."""

    format_version: int = _FORMAT
    name: str
    target_state: TargetState = TargetState.RUNNING
    config: dict[str, str]


class _StoredTarget(Struct, frozen=True):
    target_state: TargetState


class ConnectorStore:
    """Reads and writes the files of one storage.location. Every method raises StorageError."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = owner_lock.OwnerLock(storage)

    @classmethod
    def of(cls, worker: WorkerConfig) -> ConnectorStore:
        """Opens the store of a worker, whose folder need not exist."""
        return cls(worker_storage(worker).sub(FOLDER))

    @property
    def location(self) -> str:
        """The folder, as it is shown in messages."""
        return self._storage.location

    def claim(self) -> bool:
        """Takes the store for this process; returns whether it has it now."""
        return self._lock.claim(owner_lock.this_process())

    def owner(self) -> owner_lock.Owner | None:
        """Reads which process has the store."""
        return owner_lock.live_owner(self._storage)

    def release(self) -> None:
        """Gives the store back, if this process has it."""
        self._lock.release()

    def connectors(self) -> Iterator[StoredConnector]:
        """Reads every connector that was made over REST, by name; one that cannot be read is logged and left out."""
        for name in self._names(_CONNECTORS):
            path = f"{_CONNECTORS}/{name}.json"
            try:
                yield _decoded(self._storage.read(path), name)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                _log.error("stored connector cannot be read", file=f"{self.location}/{path}", error=str(error))

    def put(self, connector: StoredConnector) -> None:
        """Writes a connector, in place of the one of that name."""
        self._write(f"{_CONNECTORS}/{_checked(connector.name)}.json", msgspec.to_builtins(connector))

    def delete(self, name: str) -> None:
        """Removes what is stored of the connector `name`, if anything is."""
        for folder in (_CONNECTORS, _TARGETS):
            self._storage.delete(f"{folder}/{_checked(name)}.json")

    def files_of(self, name: str) -> tuple[str, ...]:
        """Returns the paths of what is stored of the connector `name`, as they are shown in messages."""
        paths = (f"{folder}/{_checked(name)}.json" for folder in (_CONNECTORS, _TARGETS))
        return tuple(f"{self.location}/{path}" for path in paths if self._storage.exists(path))

    def target(self, name: str) -> TargetState:
        """Reads the target state of the connector `name` of a file; RUNNING where none is stored or it is damaged."""
        path = f"{_TARGETS}/{_checked(name)}.json"
        if not self._storage.exists(path):
            return TargetState.RUNNING
        try:
            return msgspec.json.decode(self._storage.read(path), type=_StoredTarget).target_state
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.error("stored target state cannot be read", file=f"{self.location}/{path}", error=str(error))
            return TargetState.RUNNING

    def put_target(self, name: str, state: TargetState) -> None:
        """Writes the target state of the connector `name` of a file; RUNNING is that of a connector without one."""
        path = f"{_TARGETS}/{_checked(name)}.json"
        if state is TargetState.RUNNING:
            self._storage.delete(path)
        else:
            self._write(path, msgspec.to_builtins(_StoredTarget(state)))

    def _names(self, folder: str) -> list[str]:
        names = (name.removesuffix(".json") for name in self._storage.list(folder) if name.endswith(".json"))
        return [name for name in names if is_connector_name(name)]

    def _write(self, path: str, content: Mapping[str, object]) -> None:
        self._storage.write(path, json.dumps(content, indent=2).encode() + b"\n")


def _decoded(data: bytes, name: str) -> StoredConnector:
    """Reads the file of the connector `name`. Raises DecodeError, also where it is another's or of another format."""
    found = msgspec.json.decode(data, type=StoredConnector)
    if found.name != name:
        raise msgspec.ValidationError(f"it holds the connector {found.name!r}")
    if found.format_version != _FORMAT:
        raise msgspec.ValidationError(f"it has format {found.format_version}, this keyfold reads {_FORMAT}")
    return found


def _checked(name: str) -> str:
    """Returns `name`, where it is a connector's: it becomes a part of a path."""
    if not is_connector_name(name):
        raise StorageError(f"{name!r} is no connector's name.", "Choose letters, digits, '.', '_' and '-'.")
    return name
