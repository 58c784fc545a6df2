"""Carries out commands on a connector: by a request to its live worker where there is one, else by a take-over."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any, Final

import msgspec
from msgspec import Struct

from compactor.catalog import owner_lock, requests
from compactor.catalog.requests import Answer, Request
from compactor.clean.cleaner import CleanedLog
from compactor.errors import KeyfoldError, StorageError
from compactor.model.actions import AddSnapshot
from compactor.storage.base import Storage
from connectors.clock import Clock, SystemClock
from connectors.config.connector import ConnectorConfig
from connectors.config.engine_settings import kept_catalog, other_snapshots
from connectors.config.stores import connector_storage, snapshot_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import ConfigError, UnreachableError, UsageError
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.retry import poll_until
from connectors.operations.request_timeout import RequestTimeout
from connectors.progress.observer import NullObserver
from connectors.runtime.offset_change import ChangedLog, Choose, OffsetChanger, every_log
from connectors.runtime.request_handler import (
    CLEAN,
    RELEASE,
    RESTART,
    RESYNC,
    SNAPSHOT,
    BadRequestError,
    requested_logs,
)
from connectors.runtime.signals import handled
from connectors.runtime.takeover import Fenced, claimed, draw_start, take_over

POLL_SECONDS: Final = 0.2
DEFAULT_TIMEOUT: Final = RequestTimeout()


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
    worker: WorkerConfig, connector: ConnectorConfig, timeout: RequestTimeout = DEFAULT_TIMEOUT
) -> tuple[SnapshotInfo, ...]:
    """Takes a snapshot of every topic of `connector` at what is published now.

    Raises ConfigError without snapshot.location, UsageError where it keeps nothing yet, UnreachableError where a live
    worker does not answer.
    """
    place = snapshot_storage(worker, connector)
    if place is None:
        raise ConfigError(
            f"Connector {connector.name} has no snapshot.location.", "Set it in the connector file, then try again."
        )
    result = _perform(worker, connector, timeout, _request(SNAPSHOT))
    taken = msgspec.convert(result.get("snapshots", ()), tuple[AddSnapshot, ...])
    state = kept_catalog(connector_storage(worker, connector.name), connector.name).state
    return tuple(_infos(place, taken, other_snapshots(worker, connector, state)))


def fold_logs(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    topic: str | None = None,
    partition: int | None = None,
    timeout: RequestTimeout = DEFAULT_TIMEOUT,
) -> tuple[CleanedLog, ...]:
    """Folds every log (or those of `topic`, or its `partition`) in which a full fold changes anything.

    Raises ConfigError where the connector's cleanup.policy has no compact, UsageError where it has no such log,
    UnreachableError.
    """
    if "compact" not in connector.cleanup_policy:
        raise ConfigError(
            f"Connector {connector.name} has cleanup.policy=delete: its logs are not folded by key.",
            "Add compact to cleanup.policy if they are to be.",
        )
    result = _perform(worker, connector, timeout, _request(CLEAN, topic, partition))
    return msgspec.convert(result.get("logs", ()), tuple[CleanedLog, ...])


def release_log(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    topic: str,
    partition: int,
    timeout: RequestTimeout = DEFAULT_TIMEOUT,
) -> bool:
    """Ends the quarantine of a partition whose files are back; returns False where it was in none.

    Raises StorageError where a file is still missing or damaged, UsageError where there is no such log,
    UnreachableError.
    """
    return bool(_perform(worker, connector, timeout, _request(RELEASE, topic, partition)).get("released"))


def restart_connector(
    worker: WorkerConfig, connector: ConnectorConfig, timeout: RequestTimeout = DEFAULT_TIMEOUT
) -> None:
    """Asks the worker of `connector` to start it again with the settings that it has read; returns once it runs.

    Raises UsageError where no worker runs it, KeyfoldError where it FAILED again, UnreachableError.
    """
    storage = connector_storage(worker, connector.name)
    if not owner_lock.is_alive(storage):
        raise UsageError(
            f"No worker runs connector {connector.name}: there is nothing to restart.",
            "Start one: keyfold run CONNECTOR.json.",
        )
    ask(storage, connector.name, _request(RESTART), timeout, SystemClock())


def resync(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    topic: str | None = None,
    partition: int | None = None,
    timeout: RequestTimeout = DEFAULT_TIMEOUT,
    *,
    accepts_loss: bool = False,
) -> tuple[ChangedLog, ...]:
    """Begins all logs anew from the start of their source (or those of `topic`, or its `partition`), as generations.

    A live worker is asked for it, in whatever state the connector is; otherwise this process takes over, and what it
    has begun is carried out by the next run. Raises OffsetChangeError where it cannot be, and nothing was changed;
    UsageError where there is no such log, UnreachableError.
    """
    request = msgspec.structs.replace(_request(RESYNC, topic, partition), accepts_loss=accepts_loss)
    storage = connector_storage(worker, connector.name)
    _check(storage, connector.name, request)
    lock = owner_lock.OwnerLock(storage)
    answer = _answer_or_claim(lock, storage, connector.name, request, timeout)
    if answer is not None:
        return msgspec.convert(answer.get("logs", ()), tuple[ChangedLog, ...])
    try:
        return _change(worker, connector, storage, every_log(topic, partition, accepts_loss=accepts_loss))
    finally:
        lock.release()


def change_offsets(worker: WorkerConfig, connector: ConnectorConfig, choose: Choose) -> tuple[ChangedLog, ...]:
    """Changes offsets of a connector that no worker runs: takes it over, and changes them.

    Raises OffsetChangeError where they cannot be, and nothing was changed; ConflictError where a worker runs it;
    UnreachableError.
    """
    storage = connector_storage(worker, connector.name)
    with claimed(storage, connector.name):
        return _change(worker, connector, storage, choose)


def _change(
    worker: WorkerConfig, connector: ConnectorConfig, storage: Storage, choose: Choose
) -> tuple[ChangedLog, ...]:
    """Takes the connector over, without Spark, for a change of its offsets alone."""
    changed: list[ChangedLog] = []
    clients, clock = ClientSettings.of(worker, connector), SystemClock()
    buckets = kept_catalog(storage, connector.name).state.buckets or connector.tasks_max or 1

    def change(fenced: Fenced) -> None:
        changed.extend(OffsetChanger(*fenced).change(choose, clock.now_ms()))

    start = draw_start(worker)
    _, broker = take_over(storage, connector, clients, buckets, clock.now_ms(), change=change, start=start)
    broker.close()
    return tuple(changed)


def _request(kind: str, topic: str | None = None, partition: int | None = None) -> Request:
    return Request(id="", kind=kind, asked_ms=SystemClock().now_ms(), topic=topic, partition=partition)


def _perform(
    worker: WorkerConfig, connector: ConnectorConfig, timeout: RequestTimeout, request: Request
) -> dict[str, Any]:
    storage = connector_storage(worker, connector.name)
    _check(storage, connector.name, request)
    lock = owner_lock.OwnerLock(storage)
    answer = _answer_or_claim(lock, storage, connector.name, request, timeout)
    if answer is not None:
        return answer
    try:
        return _take_over(worker, connector, lock, request)
    finally:
        lock.release()


def _answer_or_claim(
    lock: owner_lock.OwnerLock, storage: Storage, name: str, request: Request, timeout: RequestTimeout
) -> dict[str, Any] | None:
    """Returns what the worker that holds `lock` answers; None where nobody holds it, and this process does from now on.

    On an object store the lock of a worker that was killed ends while it is waited for. Raises as `ask`.
    """
    if lock.claim(owner_lock.this_process()):
        return None
    try:
        return ask(storage, name, request, timeout, SystemClock())
    except UnreachableError:
        if not lock.claim(owner_lock.this_process()):
            raise
        return None


def _check(storage: Storage, name: str, request: Request) -> None:
    """Raises UsageError where the connector keeps nothing yet, or has no such topic or partition.

    Called before anything is started, created or taken over.
    """
    try:
        requested_logs(request, kept_catalog(storage, name).state)
    except BadRequestError as error:
        raise UsageError(error.message, error.action) from None


def _take_over(
    worker: WorkerConfig, connector: ConnectorConfig, lock: owner_lock.OwnerLock, request: Request
) -> dict[str, Any]:
    """Takes the connector over and carries `request` out in this process.

    The lock is held from before Spark starts: a worker that starts meanwhile fences this process, never the reverse.
    """
    from connectors.runtime.connector_task import ConnectorTask
    from connectors.spark import session

    start = draw_start(worker)
    spark = session.get_session(worker.spark_master, worker.spark_settings, worker.executors_package)
    try:
        return ConnectorTask(spark, worker, connector, SystemClock(), NullObserver(), lambda _: None, lock).perform(
            request, start
        )
    finally:
        spark.stop()


def _infos(
    place: Storage, taken: Iterable[AddSnapshot], others: Mapping[str, tuple[str, ...]]
) -> Iterable[SnapshotInfo]:
    for one in taken:
        path = f"{place.location}/{one.path}"
        yield SnapshotInfo(one.topic, one.id, path, one.records, one.bytes, others.get(one.topic, ()))


def ask(storage: Storage, name: str, wanted: Request, timeout: RequestTimeout, clock: Clock) -> dict[str, Any]:
    """Leaves `wanted` as a request, under an id of its own, and returns what the worker of connector `name` answers.

    Raises KeyfoldError with the worker's message where it refuses, UnreachableError where it does not answer in time.
    A request without an answer is taken back; one that the worker has begun goes on there, and the error says so.
    """
    limit = f"{timeout.seconds:g} s"
    timeout.say(
        f"Waiting for the worker of connector {name} ({owner_lock.live_owner(storage) or 'unknown'}) to {wanted.kind}, "
        f"{limit} at most (--timeout); Ctrl-C takes the request back."
    )
    until_ms = clock.now_ms() + round(timeout.seconds * 1000)
    with handled({signal.SIGTERM: _exit, signal.SIGHUP: _exit}):
        topic, partition, accepts_loss = wanted.topic, wanted.partition, wanted.accepts_loss
        left = requests.leave(
            storage, wanted.kind, wanted.asked_ms, topic, partition, until_ms, accepts_loss=accepts_loss
        )
        try:
            answer = _awaited(storage, left, timeout.seconds, clock)
        except BaseException:
            timeout.say(_taken_back(storage, left))
            raise
    if answer is None:
        end = _taken_back(storage, left)
        answer = requests.answered(storage, left.id)
        if answer is None or answer == requests.WITHDRAWN:
            message = f"The worker of connector {name} did not answer `{wanted.kind}` in {limit}."
            raise UnreachableError(message, f"{end} See its log; --timeout SECONDS waits longer.")
    if not answer.ok:
        raise (UnreachableError if answer.unreachable else KeyfoldError)(answer.message, answer.action)
    return answer.result


def _awaited(storage: Storage, request: Request, seconds: float, clock: Clock) -> Answer | None:
    """Waits for the answer, for at most `seconds`; None where there is none by then."""
    never = threading.Event()

    def pause(pause_s: float) -> None:
        clock.wait(pause_s, never)

    return poll_until(
        lambda answer: answer is not None,
        lambda: requests.answered(storage, request.id),
        seconds,
        POLL_SECONDS,
        clock=clock.monotonic,
        sleep=pause,
    )


def _taken_back(storage: Storage, request: Request) -> str:
    """Withdraws `request`; returns a sentence that says whether that was in time."""
    with suppress(StorageError):
        if requests.withdraw(storage, request.id):
            return "The request was taken back: no worker will carry it out."
        return f"The worker has begun it, and goes on with `{request.kind}`."
    return "The request could not be taken back; a worker drops it by itself once its time is over."


def _exit(number: int, _frame: FrameType | None) -> None:
    """Ends a wait with SystemExit at SIGTERM and SIGHUP, as Ctrl-C ends it with KeyboardInterrupt."""
    raise SystemExit(128 + number)
