"""Answers the form of a new connector: checks its JSON while it is typed, and makes it."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from compactor.errors import KeyfoldError
from connectors.config.fields import CONNECTOR_CLASS
from connectors.config.json_file import JsonError, parse_object
from connectors.errors import UsageError
from connectors.rest import errors
from connectors.rest.context import RestContext
from connectors.rest.endpoints.connectors import create_from
from connectors.rest.endpoints.plugins import faults_of
from connectors.ui.deeds import CREATE, Aim, Deeds
from connectors.ui.forms import own_form
from connectors.ui.measurements import Measurements
from connectors.ui.protection import FormTokens
from connectors.ui.templates import render
from connectors.ui.visitor import page_values, visitor

EXAMPLE: Final = """{
  "name": "customers",
  "connector.class": "keyfold.CompactedTopic",
  "topics": "customers",
  "output.topic": "${topic}.compacted"
}"""
_SEND: Final = 'Write {"name": "…", "config": {…}}, or the settings themselves with a name among them.'


class JsonVerdict(Struct, frozen=True):
    """What is wrong with a config, each fault in a line; nothing if it may be made."""

    faults: tuple[str, ...]
    name: str = ""


def wanted(text: str) -> tuple[str, dict[str, Any]]:
    """Returns name and settings of the JSON that a person has typed. Raises UsageError."""
    try:
        body = parse_object(text.encode(), "JSON")
    except JsonError as error:
        raise UsageError(str(error), _SEND) from None
    settings = body.get("config", {key: value for key, value in body.items() if key != "name"})
    if not isinstance(settings, Mapping):
        raise UsageError("config is no JSON object.", _SEND)
    name = body.get("name", settings.get("name"))
    if not isinstance(name, str) or not name.strip():
        raise UsageError("The connector has no name.", _SEND)
    return name.strip(), {"connector.class": CONNECTOR_CLASS, **settings, "name": name.strip()}


class CreatingPages:
    """Shows the form, says what is wrong with what is in it, and makes the connector."""

    def __init__(self, context: RestContext, measurements: Measurements, tokens: FormTokens, deeds: Deeds) -> None:
        self._context = context
        self._measurements = measurements
        self._tokens = tokens
        self._deeds = deeds

    def routes(self) -> list[Route]:
        """Returns their paths."""
        return [
            Route("/ui/new", self.form),
            Route("/ui/new", self.create, methods=["POST"]),
            Route("/ui/new/check", self.check, methods=["POST"]),
        ]

    def form(self, request: Request) -> Response:
        """Shows the form, with an example; to a viewer that it is not for him."""
        return self._page(request, EXAMPLE, None, HTTPStatus.OK if visitor(request).is_admin else HTTPStatus.FORBIDDEN)

    async def check(self, request: Request) -> Response:
        """Says what is wrong with the JSON, as a part of the page."""
        _, fields = await own_form(request, self._tokens)
        verdict = await self._verdict(fields.get("json", ""))
        return HTMLResponse(render("verdict.html", verdict=verdict))

    async def create(self, request: Request) -> Response:
        """Makes the connector; if it may not be, shows the form again with what is wrong."""
        who, fields = await own_form(request, self._tokens)
        text = fields.get("json", "")
        verdict = await self._verdict(text)
        if verdict.faults or fields.get("only") == "check":
            code = HTTPStatus.BAD_REQUEST if verdict.faults else HTTPStatus.OK
            return await run_in_threadpool(self._page, request, text, verdict, code)
        name, settings = wanted(text)
        deed = self._deeds.begin(name, CREATE, who.user, self._context.clock.now_ms())
        state = "STOPPED" if fields.get("state") == "STOPPED" else "RUNNING"
        try:
            with self._deeds.ended_if_broken_off(deed, self._context.clock):
                await create_from(self._context, {"name": name, "config": settings, "initial_state": state})
        except KeyfoldError as error:
            code, said = errors.refusal(request, error)
            self._deeds.end(deed, said, self._context.clock.now_ms(), ok=False)
            return await run_in_threadpool(self._page, request, text, JsonVerdict((said,)), code)
        aim = Aim(state, f"It was made, and is to be {state}.", f"It was made, and is {state}.")
        self._deeds.take(deed, aim, self._context.clock.now_ms())
        self._measurements.forget()
        return RedirectResponse(f"/ui/connectors/{quote(name, safe='')}?deed={deed.id}", HTTPStatus.SEE_OTHER)

    async def _verdict(self, text: str) -> JsonVerdict:
        try:
            name, settings = await run_in_threadpool(wanted, text)
        except UsageError as error:
            return JsonVerdict((errors.text_of(HTTPStatus.BAD_REQUEST, str(error)),))
        faults = await self._context.slow.checks.run(faults_of, self._context, settings)
        told = tuple(errors.text_of(HTTPStatus.BAD_REQUEST, str(fault)) for fault in faults)
        if not told and name in self._context.herder.names():
            told = (f"There is a connector {name} already.",)
        return JsonVerdict(told, name)

    def _page(self, request: Request, text: str, verdict: JsonVerdict | None, code: int) -> Response:
        values = page_values(request, self._context, self._tokens)
        return HTMLResponse(render("new.html", **values, json=text, verdict=verdict), code)
