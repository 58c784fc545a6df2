"""Asks the worker that runs a connector, waits for its answer, and takes the request back when the wait ends."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Final

from compactor.catalog import owner, requests
from compactor.catalog.requests import Answer, Request
from compactor.errors import KeyfoldError, StorageError
from compactor.storage.base import Storage
from connectors.clock import Clock
from connectors.errors import UnreachableError
from connectors.runtime.patience import Patience
from connectors.runtime.signals import handled

POLL_SECONDS: Final = 0.2


def ask(storage: Storage, name: str, wanted: Request, patience: Patience, clock: Clock) -> dict[str, Any]:
    """Leaves `wanted` as a request, under an id of its own, and gives what the worker of connector `name` answers.

    Raises KeyfoldError with the worker's words where it refuses, UnreachableError where it does not answer in time.
    Without an answer the request is taken back; one that the worker has begun goes on there, which is said.
    """
    limit = f"{patience.seconds:g} s"
    patience.tell(
        f"Waiting for the worker of connector {name} ({owner.living(storage) or 'unknown'}) to {wanted.kind}, "
        f"{limit} at most (--timeout); Ctrl-C takes the request back."
    )
    until_ms = clock.now_ms() + round(patience.seconds * 1000)
    with handled({signal.SIGTERM: _leave, signal.SIGHUP: _leave}):
        left = requests.leave(storage, wanted.kind, wanted.asked_ms, wanted.topic, wanted.partition, until_ms)
        try:
            answer = _awaited(storage, left, patience.seconds, clock)
        except BaseException:
            patience.tell(_taken_back(storage, left))
            raise
    if answer is None:
        end = _taken_back(storage, left)
        answer = requests.answered(storage, left.id)
        if answer is None or answer == requests.WITHDRAWN:
            message = f"The worker of connector {name} did not answer `{wanted.kind}` in {limit}."
            raise UnreachableError(message, f"{end} See its log; --timeout SECONDS waits longer.")
    if not answer.ok:
        raise KeyfoldError(answer.message, answer.action)
    return answer.result


def _awaited(storage: Storage, request: Request, seconds: float, clock: Clock) -> Answer | None:
    """The answer, or None when the time is over."""
    deadline = clock.monotonic() + seconds
    never = threading.Event()
    while (answer := requests.answered(storage, request.id)) is None and clock.monotonic() < deadline:
        clock.wait(POLL_SECONDS, never)
    return answer


def _taken_back(storage: Storage, request: Request) -> str:
    """Takes `request` back, and says whether that was in time."""
    with suppress(StorageError):
        if requests.withdraw(storage, request.id):
            return "The request was taken back: no worker will carry it out."
        return f"The worker has begun it, and goes on with `{request.kind}`."
    return "The request could not be taken back; a worker drops it by itself once its time is over."


def _leave(number: int, _frame: FrameType | None) -> None:
    """SIGTERM, and the end of the terminal, end a wait as an exception, as Ctrl-C does."""
    raise SystemExit(128 + number)
