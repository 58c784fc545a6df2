"""What commands do to a connector: through its live worker where there is one, else by taking it over themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from compactor.catalog import owner
from compactor.catalog.requests import Request
from compactor.clean.cleaner import CleanedLog
from compactor.model.actions import AddSnapshot
from compactor.storage.base import Storage
from connectors.clock import SystemClock
from connectors.config.connector import ConnectorConfig
from connectors.config.stores import connector_storage, kept_catalog, other_snapshots
from connectors.config.worker import WorkerConfig
from connectors.errors import ConfigError, UsageError
from connectors.progress.observer import NullObserver
from connectors.runtime.asking import ask
from connectors.runtime.patience import Patience
from connectors.runtime.request_handler import CLEAN, RELEASE, RESTART, SNAPSHOT, AskedWrongError, asked_for

NO_WORD: Final = Patience()


class SnapshotInfo(Struct, frozen=True):
    """A snapshot that was taken; `path` is its folder, `bytes` those of its data files.

    `other_snapshots` are the ids beside it that are of another catalog: nothing touches them.
    """

    topic: str
    id: str
    path: str
    records: int
    bytes: int
    other_snapshots: tuple[str, ...] = ()


def take_snapshot(
    worker: WorkerConfig, connector: ConnectorConfig, patience: Patience = NO_WORD
) -> tuple[SnapshotInfo, ...]:
    """Snapshots every topic of `connector` at what is published now.

    Raises ConfigError without snapshot.location, UsageError where it keeps nothing yet, UnreachableError where a live
    worker does not answer.
    """
    if connector.snapshot_path is None:
        raise ConfigError(
            f"Connector {connector.name} has no snapshot.location.", "Set it in the connector file, then try again."
        )
    result = _perform(worker, connector, patience, _request(SNAPSHOT))
    taken = msgspec.convert(result.get("snapshots", ()), tuple[AddSnapshot, ...])
    state = kept_catalog(connector_storage(worker, connector.name), connector.name).state
    return tuple(_infos(connector.snapshot_path, taken, other_snapshots(connector, state)))


def fold_logs(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    topic: str | None = None,
    partition: int | None = None,
    patience: Patience = NO_WORD,
) -> tuple[CleanedLog, ...]:
    """A full fold of every log (or those of `topic`, or its `partition`) in which it changes anything.

    Raises ConfigError where the connector's cleanup.policy has no compact, UsageError where it has no such log,
    UnreachableError.
    """
    if not connector.policy.compacts:
        raise ConfigError(
            f"Connector {connector.name} has cleanup.policy=delete: its logs are not folded by key.",
            "Add compact to cleanup.policy if they are to be.",
        )
    result = _perform(worker, connector, patience, _request(CLEAN, topic, partition))
    return msgspec.convert(result.get("logs", ()), tuple[CleanedLog, ...])


def release_log(
    worker: WorkerConfig, connector: ConnectorConfig, topic: str, partition: int, patience: Patience = NO_WORD
) -> bool:
    """Ends the quarantine of a partition whose files are back; False where it was in none.

    Raises StorageError where a file is still missing or damaged, UsageError where there is no such log,
    UnreachableError.
    """
    return bool(_perform(worker, connector, patience, _request(RELEASE, topic, partition)).get("released"))


def restart_connector(worker: WorkerConfig, connector: ConnectorConfig, patience: Patience = NO_WORD) -> None:
    """Has the worker of `connector` start it again, under the settings that the worker has read; returns once it runs.

    Raises UsageError where no worker runs it, KeyfoldError where it FAILED again, UnreachableError.
    """
    storage = connector_storage(worker, connector.name)
    if not owner.is_alive(storage):
        raise UsageError(
            f"No worker runs connector {connector.name}: there is nothing to restart.",
            "Start one: keyfold run CONNECTOR.json.",
        )
    ask(storage, connector.name, _request(RESTART), patience, SystemClock())


def _request(kind: str, topic: str | None = None, partition: int | None = None) -> Request:
    return Request(id="", kind=kind, asked_ms=SystemClock().now_ms(), topic=topic, partition=partition)


def _perform(worker: WorkerConfig, connector: ConnectorConfig, patience: Patience, request: Request) -> dict[str, Any]:
    storage = connector_storage(worker, connector.name)
    _check(storage, connector.name, request)
    lock = owner.OwnerLock(storage)
    if not lock.claim(owner.here()):
        return ask(storage, connector.name, request, patience, SystemClock())
    try:
        return _take_over(worker, connector, lock, request)
    finally:
        lock.release()


def _check(storage: Storage, name: str, request: Request) -> None:
    """Raises UsageError where the connector keeps nothing yet, or has no such topic or partition.

    That is before anything starts, is made, or is taken over.
    """
    try:
        asked_for(request, kept_catalog(storage, name).state)
    except AskedWrongError as error:
        raise UsageError(error.message, error.action) from None


def _take_over(
    worker: WorkerConfig, connector: ConnectorConfig, lock: owner.OwnerLock, request: Request
) -> dict[str, Any]:
    """The lock is held from before Spark starts: a worker that starts meanwhile fences us, never the reverse."""
    from connectors.runtime.connector_task import ConnectorTask
    from connectors.spark import session as sparks

    spark = sparks.session(worker.spark_master, worker.spark_settings)
    try:
        return ConnectorTask(spark, worker, connector, SystemClock(), NullObserver(), lambda _: None, lock).perform(
            request
        )
    finally:
        spark.stop()


def _infos(shelf: Path, taken: Iterable[AddSnapshot], others: Mapping[str, tuple[str, ...]]) -> Iterable[SnapshotInfo]:
    for one in taken:
        path = str(shelf / one.path)
        yield SnapshotInfo(one.topic, one.id, path, one.records, one.bytes, others.get(one.topic, ()))
