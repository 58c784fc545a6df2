"""Answers the forms of a connector: pause, resume, stop, restart, clean, snapshot, resync, delete."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from compactor.errors import KeyfoldError
from connectors.errors import UsageError
from connectors.rest import errors
from connectors.rest.context import RestContext
from connectors.runtime.lifecycle import TargetState
from connectors.ui.asked_runs import KINDS, AskedRuns
from connectors.ui.deeds import Deed, Deeds
from connectors.ui.forms import own_form
from connectors.ui.measurements import Measurements
from connectors.ui.offered import DELETE, OFFERS, RESTART
from connectors.ui.protection import FormTokens

_log = structlog.get_logger()

_TARGETS: Final = {
    "pause": (TargetState.PAUSED, "It holds once the step that it is in has ended."),
    "resume": (TargetState.RUNNING, "It runs again."),
    "stop": (TargetState.STOPPED, "It ends, and lets go of what it holds."),
}


class ActingPages:
    """Does what forms ask for, and leads the browser to the page that says what was done and when."""

    def __init__(
        self, context: RestContext, measurements: Measurements, tokens: FormTokens, deeds: Deeds, runs: AskedRuns
    ) -> None:
        self._context = context
        self._measurements = measurements
        self._tokens = tokens
        self._deeds = deeds
        self._runs = runs

    def routes(self) -> list[Route]:
        """Returns their paths: one for each of OFFERS."""
        return [Route("/ui/connectors/{name}/{deed}", self.act, methods=["POST"])]

    async def act(self, request: Request) -> Response:
        """Does a deed. Raises NoConnectorError; any other refusal is kept as what came of it."""
        who, fields = await own_form(request, self._tokens)
        name, path = request.path_params["name"], request.path_params["deed"]
        if path not in OFFERS:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        self._context.herder.connector(name)
        _check_confirmed(path, name, fields)
        deed = self._deeds.begin(name, OFFERS[path].label.rstrip("…"), who.user, self._context.clock.now_ms())
        _log.info("asked for on the page", connector=name, deed=path, user=who.user)
        with self._deeds.ended_if_broken_off(deed, self._context.clock):
            try:
                said = await self._do(path, name, deed)
            except KeyfoldError as error:
                self._end(deed, errors.refusal(request, error)[1], ok=False)
            else:
                if said is not None:
                    self._end(deed, said)
        self._measurements.forget()
        is_gone = path == DELETE.path and (self._deeds.named(deed.id) or deed).ok
        back = is_gone or fields.get("back") == "overview"
        where = "/ui" if back else f"/ui/connectors/{quote(name, safe='')}"
        return RedirectResponse(f"{where}?deed={deed.id}", HTTPStatus.SEE_OTHER)

    def _end(self, deed: Deed, said: str, *, ok: bool = True) -> None:
        self._deeds.end(deed, said, self._context.clock.now_ms(), ok=ok)

    async def _do(self, path: str, name: str, deed: Deed) -> str | None:
        """Does it; returns what came of it, None if that is said later. Raises KeyfoldError."""
        herder, slow = self._context.herder, self._context.slow
        if path in KINDS:
            self._runs.begin(path, deed)
            return None
        if path == RESTART.path:
            if herder.connector(name).spec.target is TargetState.STOPPED:
                raise UsageError(f"Connector {name} is stopped.", "Resume it: it starts again then.")
            await slow.changes.run(herder.restart, name)  # it waits for the herder's lock
            return "It is being started again."
        if path == DELETE.path:
            await slow.changes.run(herder.specs.delete, name)
            self._context.topics.forget(name)
            return "Its config is forgotten; what it has kept and published stays."
        target, said = _TARGETS[path]
        await slow.changes.run(herder.specs.target, name, target)
        return said


def _check_confirmed(path: str, name: str, fields: Mapping[str, str]) -> None:
    """Raises UsageError unless a deed that asks first was confirmed; a deletion by the connector's name."""
    if not OFFERS[path].asks_first:
        return
    wanted = name if path == DELETE.path else "yes"
    if fields.get("confirm", "").strip() != wanted:
        said = "The name was not typed as it is" if path == DELETE.path else "It was not confirmed"
        raise UsageError(f"{said}; nothing was done.", "Go back, and confirm it.")
