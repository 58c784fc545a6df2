"""Carries out what commands ask of a live worker: compactor.requests, seen from the worker's side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from compactor import requests
from compactor.actions import AddSnapshot
from compactor.errors import KeyfoldError
from compactor.microbatch import Engine
from compactor.requests import Answer, Request
from compactor.storage import Storage
from connectors.clock import Clock

SNAPSHOT: Final = "snapshot"

_log = structlog.get_logger()


class Answers:
    """Looks for requests in one connector's folder, and carries them out."""

    def __init__(self, storage: Storage, engine: Engine, clock: Clock) -> None:
        self._storage = storage
        self._engine = engine
        self._clock = clock

    def answer(self) -> None:
        """Carries out every request that waits. Raises what ends a connector anyway (StorageError, FencedError)."""
        for request in requests.pending(self._storage):
            _log.info("request", kind=request.kind, id=request.id)
            try:
                answer = self._carry_out(request)
            except Exception as error:
                # First the answer: who asks again and again must not end every life of this connector.
                requests.answer(self._storage, request.id, Answer(ok=False, message=str(error)))
                raise
            requests.answer(self._storage, request.id, answer)

    def _carry_out(self, request: Request) -> Answer:
        if request.kind != SNAPSHOT:
            return Answer(
                ok=False,
                message=f"The worker that runs this connector does not know {request.kind!r}.",
                action="Run worker and command from the same version of keyfold.",
            )
        try:
            return Answer(ok=True, result=snapshots_result(self._engine.snapshot(self._clock.now_ms())))
        except KeyfoldError as error:
            if error.retriable:
                return Answer(ok=False, message=error.message, action=error.action)
            raise


def snapshots_result(taken: Sequence[AddSnapshot]) -> dict[str, object]:
    """What a snapshot request is answered with; `snapshots_of` reads it."""
    return {"snapshots": msgspec.to_builtins(taken)}


def snapshots_of(answer: Answer) -> tuple[AddSnapshot, ...]:
    """The snapshots that an answer names."""
    return tuple(msgspec.convert(one, AddSnapshot) for one in answer.result.get("snapshots", ()))
