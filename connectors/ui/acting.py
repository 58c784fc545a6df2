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
from connectors.ui.deeds import Aim, Deed, Deeds
from connectors.ui.forms import own_form
from connectors.ui.measurements import Measurements
from connectors.ui.offered import DELETE, OFFERS, RESTART
from connectors.ui.protection import FormTokens

_log = structlog.get_logger()

_AIMS: Final = {
    "pause": Aim("PAUSED", "It holds once the step that it is in has ended.", "It holds; what it has open stays open."),
    "resume": Aim("RUNNING", "It is to run again.", "It runs again."),
    "stop": Aim(
        "STOPPED", "It is to end, and to let go of what it holds.", "It has ended, and let go of what it held."
    ),
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
                await self._do(path, name, deed)
            except KeyfoldError as error:
                said = errors.refusal(request, error)[1]
                self._deeds.end(deed, said, self._context.clock.now_ms(), ok=False)
        self._measurements.forget()
        is_gone = path == DELETE.path and (self._deeds.named(deed.id) or deed).ok
        back = is_gone or fields.get("back") == "overview"
        where = "/ui" if back else f"/ui/connectors/{quote(name, safe='')}"
        return RedirectResponse(f"{where}?deed={deed.id}", HTTPStatus.SEE_OTHER)

    async def _do(self, path: str, name: str, deed: Deed) -> None:
        """Does it, and keeps what came of it, unless that is known later. Raises KeyfoldError."""
        if path in KINDS:
            self._runs.begin(path, deed)
        elif path == DELETE.path:
            await self._context.slow.changes.run(self._context.herder.specs.delete, name)
            self._context.topics.forget(name)
            said = "Its config is forgotten; what it has kept and published stays."
            self._deeds.end(deed, said, self._context.clock.now_ms())
        else:
            aim = await (self._restart(name) if path == RESTART.path else self._aim(path, name))
            self._deeds.take(deed, aim, self._context.clock.now_ms())

    async def _restart(self, name: str) -> Aim:
        """Has it started again. Raises UsageError if it is stopped, NoConnectorError, NoThreadError."""
        herder = self._context.herder
        target = herder.connector(name).spec.target
        if target is TargetState.STOPPED:
            raise UsageError(f"Connector {name} is stopped.", "Resume it: it starts again then.")
        await self._context.slow.changes.run(herder.restart, name)  # it waits for the herder's lock
        return Aim(target.value, "It is to be started again.", "It was started again.")

    async def _aim(self, path: str, name: str) -> Aim:
        """Sets the state that it is to have. Raises NoConnectorError, StorageError."""
        aim = _AIMS[path]
        await self._context.slow.changes.run(self._context.herder.specs.target, name, TargetState(aim.state))
        return aim


def _check_confirmed(path: str, name: str, fields: Mapping[str, str]) -> None:
    """Raises UsageError unless a deed that asks first was confirmed; a deletion by the connector's name."""
    if not OFFERS[path].asks_first:
        return
    wanted = name if path == DELETE.path else "yes"
    if fields.get("confirm", "").strip() != wanted:
        said = "The name was not typed as it is" if path == DELETE.path else "It was not confirmed"
        raise UsageError(f"{said}; nothing was done.", "Go back, and confirm it.")
