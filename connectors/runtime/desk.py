"""Requests that no life of a connector can answer: `restart` at any time, and every other one while it is FAILED.

The connector may have failed because of the store: nothing here raises StorageError, and what the store refuses is
tried again at the next look.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import structlog

from compactor.catalog import requests
from compactor.catalog.requests import Answer, Request
from compactor.errors import StorageError
from compactor.storage.base import Storage
from connectors.clock import Clock
from connectors.runtime.request_handler import RESTART

RUNNING: Final = Answer(ok=True, result={"state": "RUNNING"})

_log = structlog.get_logger()


class Desk:
    """The requests of one connector that its supervisor answers."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._taken: dict[str, None] = {}

    def restart_asked(self) -> bool:
        """Whether a command asks for a restart that has not begun."""
        return any(request.kind == RESTART and request.id not in self._taken for request in self._pending())

    def begin_restarts(self) -> None:
        """Begins every `restart` that waits: the life that starts now is what they ask for."""
        with suppress(StorageError):
            restarts = [request for request in self._pending() if request.kind == RESTART]
            self._taken |= {one.id: None for one in restarts if requests.begin(self._storage, one.id)}

    def restarted(self, answer: Answer) -> None:
        """Answers the restarts that have begun with what came of them."""
        for one in tuple(self._taken):
            with suppress(StorageError):
                requests.answer(self._storage, one, answer)
                self._taken.pop(one, None)

    def refuse(self, answer: Answer) -> None:
        """Answers every request but restarts with `answer`."""
        for one in self._pending():
            if one.kind != RESTART:
                with suppress(StorageError):
                    self._refuse(one, answer)

    def _refuse(self, request: Request, answer: Answer) -> None:
        if requests.begin(self._storage, request.id):
            _log.info("request refused", kind=request.kind, id=request.id, why=answer.message)
            requests.answer(self._storage, request.id, answer)

    def _pending(self) -> Iterable[Request]:
        try:
            return requests.pending(self._storage, self._clock.now_ms())
        except StorageError:
            return ()
