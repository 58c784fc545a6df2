"""What commands do to a connector: through its live worker where there is one, else by taking it over themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from compactor import owner, requests
from compactor.actions import AddSnapshot
from compactor.catalog import Catalog
from compactor.cleaner import Folded
from compactor.errors import KeyfoldError
from compactor.requests import Request
from compactor.storage import Storage
from connectors.answers import CLEAN, RELEASE, SNAPSHOT, AskedWrongError, asked_for
from connectors.clock import Clock, SystemClock
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.errors import ConfigError, UnreachableError, UsageError
from connectors.progress import NullObserver
from connectors.stores import connector_storage, other_snapshots

ANSWER_SECONDS: Final = 600.0
POLL_SECONDS: Final = 0.2


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
    worker: WorkerConfig, connector: ConnectorConfig, clock: Clock | None = None
) -> tuple[SnapshotInfo, ...]:
    """Snapshots every topic of `connector` at what is published now.

    Raises ConfigError without snapshot.location, UnreachableError where a live worker does not answer.
    """
    if connector.snapshot_path is None:
        raise ConfigError(
            f"Connector {connector.name} has no snapshot.location.", "Set it in the connector file, then try again."
        )
    result = _perform(worker, connector, clock or SystemClock(), SNAPSHOT)
    taken = msgspec.convert(result.get("snapshots", ()), tuple[AddSnapshot, ...])
    state = Catalog.open(connector_storage(worker, connector.name), connector.name).state
    return tuple(_infos(connector.snapshot_path, taken, other_snapshots(connector, state)))


def fold_logs(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    topic: str | None = None,
    partition: int | None = None,
    clock: Clock | None = None,
) -> tuple[Folded, ...]:
    """A full fold of every log (or those of `topic`, or its `partition`) in which it changes anything.

    Raises ConfigError where the connector's cleanup.policy has no compact, UsageError where it has no such log,
    UnreachableError.
    """
    if not connector.policy.compacts:
        raise ConfigError(
            f"Connector {connector.name} has cleanup.policy=delete: its logs are not folded by key.",
            "Add compact to cleanup.policy if they are to be.",
        )
    result = _perform(worker, connector, clock or SystemClock(), CLEAN, topic, partition)
    return msgspec.convert(result.get("logs", ()), tuple[Folded, ...])


def release_log(
    worker: WorkerConfig, connector: ConnectorConfig, topic: str, partition: int, clock: Clock | None = None
) -> bool:
    """Ends the quarantine of a partition whose files are back; False where it was in none.

    Raises StorageError where a file is still missing or damaged, UsageError where there is no such log,
    UnreachableError.
    """
    return bool(_perform(worker, connector, clock or SystemClock(), RELEASE, topic, partition).get("released"))


def _perform(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    clock: Clock,
    kind: str,
    topic: str | None = None,
    partition: int | None = None,
) -> dict[str, Any]:
    storage = connector_storage(worker, connector.name)
    request = Request(id="", kind=kind, asked_ms=clock.now_ms(), topic=topic, partition=partition)
    _check(storage, connector.name, request)
    lock = owner.OwnerLock(storage)
    if not lock.claim(owner.here()):
        return _ask(storage, connector.name, clock, kind, topic, partition)
    return _take_over(worker, connector, clock, lock, request)


def _check(storage: Storage, name: str, request: Request) -> None:
    """Raises UsageError where the connector has no such topic or partition, before anything starts or is taken over."""
    state = Catalog.open(storage, name).state
    if not state.topics:  # nobody has looked for its topics yet
        return
    try:
        asked_for(request, state)
    except AskedWrongError as error:
        raise UsageError(error.message, error.action) from None


def _ask(
    storage: Storage, name: str, clock: Clock, kind: str, topic: str | None, partition: int | None
) -> dict[str, Any]:
    request = requests.leave(storage, kind, clock.now_ms(), topic, partition)
    deadline = clock.monotonic() + ANSWER_SECONDS
    never = threading.Event()
    while (answer := requests.answered(storage, request.id)) is None:
        if clock.monotonic() >= deadline and requests.withdraw(storage, request.id):
            raise UnreachableError(
                f"The worker of connector {name} did not answer in {ANSWER_SECONDS:.0f} s.",
                "See its log; it may be in a long fold. The request was withdrawn.",
            )
        clock.wait(POLL_SECONDS, never)
    if not answer.ok:
        raise KeyfoldError(answer.message, answer.action)
    return answer.result


def _take_over(
    worker: WorkerConfig, connector: ConnectorConfig, clock: Clock, lock: owner.OwnerLock, request: Request
) -> dict[str, Any]:
    """The lock is held from before Spark starts: a worker that starts meanwhile fences us, never the reverse."""
    from connectors import spark as sparks
    from connectors.pipeline import Pipeline

    spark = sparks.session(worker.spark_master, worker.spark_settings)
    try:
        return Pipeline(spark, worker, connector, clock, NullObserver(), lambda _: None, lock).perform(request)
    finally:
        spark.stop()


def _infos(shelf: Path, taken: Iterable[AddSnapshot], others: Mapping[str, tuple[str, ...]]) -> Iterable[SnapshotInfo]:
    for one in taken:
        path = str(shelf / one.path)
        yield SnapshotInfo(one.topic, one.id, path, one.records, one.bytes, others.get(one.topic, ()))
