"""The requests that a supervisor answers, and what: its connector runs, what was changed, or why nothing was done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from compactor.catalog import requests
from compactor.catalog.requests import Answer, Request
from compactor.errors import StorageError
from compactor.model.times import moment
from compactor.storage.base import Storage
from connectors.clock import Clock
from connectors.runtime.offset_change import MAY_BE_DONE, ChangedLog
from connectors.runtime.request_handler import OF_A_RUN, RESYNCS
from connectors.runtime.status import Status

STORE_LOOK_MS: Final = 5_000
"""How often an object store is asked for requests of a new run."""
RUNNING: Final = Answer(ok=True, result={"state": "RUNNING"})
MEND: Final = (
    "Mend what the error names. If that is in the connector's file, send the worker SIGHUP, which reads it again; "
    "otherwise `keyfold restart` starts the connector."
)
NOT_DONE: Final = "Nothing was done of what was asked: run the command again then."

_log = structlog.get_logger()


class RestartRequests:
    """The requests that a connector's supervisor answers: those of a new run always, all others while it is FAILED.

    The connector may have failed for its storage: nothing here raises StorageError, and what the storage refuses is
    tried again at the next look.
    """

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        # By id of a request that has begun and has no answer in the storage: its own answer, which is tried again; None
        # if it gets that of the run.
        self._begun: dict[str, Answer | None] = {}
        self._next_look_ms = clock.monotonic_ms()

    def restart_requested(self, *, asked: bool = False) -> bool:
        """Returns whether a command asks for something that a new run begins with, and that has not begun.

        An object store is asked every STORE_LOOK_MS only, as each look is paid for, unless `asked`: the run that is
        under way has seen a request there.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_look_ms and not asked:
            return False
        self._next_look_ms = now_ms if self._storage.is_folder else now_ms + STORE_LOOK_MS
        return any(request.kind in OF_A_RUN and request.id not in self._begun for request in self._pending())

    def begin_restarts(self) -> tuple[Request, ...]:
        """Begins every `restart` and `resync` that waits, which the run that starts now is for; returns the latter.

        One that was carried out is not begun again if the storage has refused its answer so far.
        """
        with suppress(StorageError):
            waiting = [
                request
                for request in self._pending()
                if request.kind in OF_A_RUN and self._begun.get(request.id) is None
            ]
            begun = [request for request in waiting if requests.begin(self._storage, request.id)]
            self._begun |= {request.id: None for request in begun}
            return tuple(request for request in begun if request.kind in RESYNCS)
        return ()

    def answer(self, request: Request, answer: Answer) -> None:
        """Answers a request that has begun; if the storage refuses, `answer_restarts` tries the same answer again."""
        self._begun[request.id] = answer
        self._answer(request.id, answer)

    def answer_restarts(self, answer: Answer) -> None:
        """Answers what has begun with `answer`, what came of the run; a request that has its own answer with that."""
        for request_id, own in tuple(self._begun.items()):
            self._answer(request_id, own or answer)

    def refuse_others(self, answer: Answer) -> None:
        """Answers every request with `answer`, but those that a new run begins with."""
        for request in self._pending():
            if request.kind in OF_A_RUN:
                continue
            with suppress(StorageError):
                if requests.begin(self._storage, request.id):
                    _log.info("request refused", kind=request.kind, id=request.id, why=answer.message)
                    requests.answer(self._storage, request.id, answer)

    def _answer(self, request_id: str, answer: Answer) -> None:
        with suppress(StorageError):
            requests.answer(self._storage, request_id, answer)
            self._begun.pop(request_id, None)

    def _pending(self) -> Iterable[Request]:
        try:
            return requests.pending(self._storage, self._clock.now_ms())
        except StorageError:
            return ()


class Doubt(Struct, frozen=True):
    """What is known of a request as a run has failed.

    `begun`: the run was for it. `was_resync`: it asked to change offsets. `is_in_doubt`: nothing tells if they changed.
    """

    begun: bool
    was_resync: bool
    is_in_doubt: bool


def failure_answer(connector: str, current: Status, doubt: Doubt, *, unreachable: bool) -> Answer:
    """Returns the answer while a connector is FAILED, or waits for an outage to end."""
    at_ms = current.next_restart_ms
    state = "waits for an outage to end" if current.waits else "is FAILED"
    when = "" if at_ms is None else f", and is started again at {moment(at_ms)} or before"
    is_in_doubt = doubt.begun and doubt.is_in_doubt
    again = MAY_BE_DONE if is_in_doubt or (doubt.begun and not doubt.was_resync) else NOT_DONE
    action = again if at_ms is not None else f"{MAY_BE_DONE} {MEND}" if is_in_doubt else MEND
    message = f"Connector {connector} {state}{when}: {current.error}"
    return Answer(ok=False, message=message, action=action, unreachable=current.waits or unreachable)


def done_answer(changed: Sequence[ChangedLog]) -> Answer:
    """Returns the answer to a resync that has changed these logs."""
    return Answer(ok=True, result={"logs": msgspec.to_builtins(changed)})
