"""Has the worker of a connector carry out a request, or this process, after a take-over, if no worker runs it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, Final

from msgspec.structs import replace

from compactor.catalog import owner_lock, requests
from compactor.catalog.owner_lock import OwnerLock
from compactor.catalog.requests import Answer, Request
from compactor.errors import FencedError, KeyfoldError, StorageError
from compactor.storage.base import Storage
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.engine_settings import kept_catalog
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import UnreachableError, UsageError
from connectors.operations.request_timeout import RequestTimeout
from connectors.progress.observer import Observer
from connectors.runtime.request_handler import BadRequestError, requested_logs
from connectors.runtime.takeover import draw_start
from connectors.signals import handled

DEFAULT_TIMEOUT: Final = RequestTimeout()
# How often the answer is looked for. Each look is a request to an object store; a longer pause is felt by a person.
POLL_MS: Final = 200

Here = Callable[[Request, OwnerLock], dict[str, Any]]
"""Carries a request out in this process, which holds the connector's lock; returns what a worker would answer."""


def request(kind: str, topic: str | None = None, partition: int | None = None) -> Request:
    """Returns a request of now for all logs, or those of `topic`, or its `partition`; `ask` gives it an id."""
    return Request(id="", kind=kind, asked_ms=SYSTEM_CLOCK.now_ms(), topic=topic, partition=partition)


def perform(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    wanted: Request,
    timeout: RequestTimeout,
    here: Here | None = None,
) -> dict[str, Any]:
    """Has `wanted` carried out and returns its result: by the live worker, else by `here` (a run of the connector).

    Raises UsageError if the connector keeps nothing yet, or has no such topic or partition: nothing was started,
    created or taken over then. Raises UnreachableError if a live worker does not answer; what the request raises.
    """
    storage = connector_storage(worker, connector.name)
    try:
        requested_logs(wanted, kept_catalog(storage, connector.name).state)
    except BadRequestError as error:
        raise UsageError(error.message, error.action) from None

    if here is not None:
        return answered(storage, connector.name, wanted, timeout, here)
    return answered(storage, connector.name, wanted, timeout, partial(_run, worker, connector), asks_new_owner=True)


def answered(
    storage: Storage,
    name: str,
    wanted: Request,
    timeout: RequestTimeout,
    here: Here,
    clock: Clock = SYSTEM_CLOCK,
    *,
    asks_new_owner: bool = False,
) -> dict[str, Any]:
    """Returns what the worker that holds the lock of connector `name` answers; if none holds it, what `here` returns.

    The lock is held while `here` runs. On an object store the lock of a worker that was killed ends only after a
    while, possibly during the wait for an answer; then `here` is called. A worker that starts meanwhile fences `here`:
    with `asks_new_owner`, for a request that may be carried out twice, it is asked then. Raises as `ask` and `here` do.
    """
    lock = OwnerLock(storage)
    if not lock.claim(owner_lock.this_process()):
        try:
            return ask(storage, name, wanted, timeout, clock)
        except UnreachableError:
            if not lock.claim(owner_lock.this_process()):
                raise
    try:
        return here(wanted, lock)
    except FencedError:
        if not asks_new_owner:
            raise
    finally:
        lock.release()
    return ask(storage, name, wanted, timeout, clock)


def _run(worker: WorkerConfig, connector: ConnectorConfig, wanted: Request, lock: OwnerLock) -> dict[str, Any]:
    """Takes the connector over and carries `wanted` out on a Spark of this process.

    `lock` is held from before Spark starts: a worker that starts meanwhile fences this process, never the reverse.
    """
    from connectors.runtime.connector_task import ConnectorTask
    from connectors.spark import session

    start = draw_start(worker)
    spark = session.get_session(worker.spark_master, worker.spark_settings, worker.executors_package)
    try:
        task = ConnectorTask(spark, worker, connector, SYSTEM_CLOCK, Observer(), lambda _: None, lock)
        return task.perform(wanted, start)
    finally:
        spark.stop()


def ask(storage: Storage, name: str, wanted: Request, timeout: RequestTimeout, clock: Clock) -> dict[str, Any]:
    """Leaves `wanted` as a request, under an id of its own, and returns what the worker of connector `name` answers.

    Raises KeyfoldError with the worker's message if it refuses, UnreachableError if it does not answer in time.
    A request without an answer is taken back; one that the worker has begun goes on there, and the error says so.
    """
    limit = f"{timeout.seconds:g} s"
    timeout.say(
        f"Waiting for the worker of connector {name} ({owner_lock.live_owner(storage) or 'unknown'}) to {wanted.kind}, "
        f"{limit} at most (--timeout); Ctrl-C takes the request back."
    )
    until_ms = clock.now_ms() + round(timeout.seconds * 1000)
    with handled({signal.SIGTERM: _exit, signal.SIGHUP: _exit}):
        left = requests.leave(storage, replace(wanted, until_ms=until_ms))
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


def _awaited(storage: Storage, left: Request, seconds: float, clock: Clock) -> Answer | None:
    """Waits for the answer for at most `seconds`; returns None if there is none by then."""
    until_ms = clock.monotonic_ms() + round(seconds * 1000)
    while (answer := requests.answered(storage, left.id)) is None and clock.monotonic_ms() < until_ms:
        clock.sleep_ms(min(POLL_MS, max(0, until_ms - clock.monotonic_ms())))
    return answer


def _taken_back(storage: Storage, left: Request) -> str:
    """Withdraws the request `left`; returns a sentence that says whether that was in time."""
    with suppress(StorageError):
        if requests.withdraw(storage, left.id):
            return "The request was taken back: no worker will carry it out."
        return f"The worker has begun it, and goes on with `{left.kind}`."
    return "The request could not be taken back; a worker drops it by itself once its time is over."


def _exit(number: int, _frame: FrameType | None) -> None:
    """Ends a wait with SystemExit at SIGTERM and SIGHUP, as Ctrl-C ends it with KeyboardInterrupt."""
    raise SystemExit(128 + number)
