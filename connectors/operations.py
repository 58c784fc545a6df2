"""What commands do to a connector: through its live worker where there is one, else by taking it over themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

from compactor import owner, requests
from compactor.actions import AddSnapshot
from compactor.errors import KeyfoldError
from compactor.storage import Storage
from connectors.answers import SNAPSHOT, snapshots_of
from connectors.clock import Clock, SystemClock
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.errors import ConfigError, UnreachableError
from connectors.progress import NullObserver
from connectors.stores import connector_storage

ANSWER_SECONDS: Final = 600.0
POLL_SECONDS: Final = 0.2


class SnapshotInfo(Struct, frozen=True):
    """A snapshot that was taken; `path` is its folder, `bytes` those of its data files."""

    topic: str
    id: str
    path: str
    records: int
    bytes: int


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
    storage = connector_storage(worker, connector.name)
    lock = owner.OwnerLock(storage)
    if lock.claim(owner.here()):
        taken = _take_over(worker, connector, clock or SystemClock(), lock)
    else:
        taken = _ask(storage, connector.name, clock or SystemClock())
    return tuple(_infos(connector.snapshot_path, taken))


def _ask(storage: Storage, name: str, clock: Clock) -> tuple[AddSnapshot, ...]:
    request = requests.leave(storage, SNAPSHOT, clock.now_ms())
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
    return snapshots_of(answer)


def _take_over(
    worker: WorkerConfig, connector: ConnectorConfig, clock: Clock, lock: owner.OwnerLock
) -> tuple[AddSnapshot, ...]:
    """The lock is held from before Spark starts: a worker that starts meanwhile fences us, never the reverse."""
    from connectors import spark as sparks
    from connectors.pipeline import Pipeline

    spark = sparks.session(worker.spark_master, worker.spark_settings)
    try:
        return Pipeline(spark, worker, connector, clock, NullObserver(), lambda _: None, lock).snapshot()
    finally:
        spark.stop()


def _infos(shelf: Path, taken: Iterable[AddSnapshot]) -> Iterable[SnapshotInfo]:
    for one in taken:
        yield SnapshotInfo(one.topic, one.id, str(shelf / one.path), one.records, one.bytes)
