"""Answers the what-if of a connector: the form with its sliders, the question, and what has become of it.

All who see the page see answers. To ask takes the role admin: it costs a core for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import quote

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from compactor.errors import KeyfoldError
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault, FaultyConfigError
from connectors.errors import BusyError
from connectors.operations.analyze import changed_settings
from connectors.rest import errors
from connectors.rest.context import RestContext
from connectors.ui.forms import own_form
from connectors.ui.protection import FormTokens
from connectors.ui.reading import ReadingPages, page_number
from connectors.ui.what_if import messages
from connectors.ui.what_if.controls import (
    SCOPE,
    SCOPES,
    chosen_changes,
    present_values,
    shown_controls,
    unread_durations,
    written_changes,
)
from connectors.ui.what_if.runs import RunStage, WhatIfRun, WhatIfRuns
from connectors.ui.what_if.shown_report import ShownReport, shown_report

_log = structlog.get_logger()


class WhatIfPages:
    """Makes these pages; what is counted is counted elsewhere."""

    def __init__(self, context: RestContext, pages: ReadingPages, tokens: FormTokens, runs: WhatIfRuns) -> None:
        self._context = context
        self._pages = pages
        self._tokens = tokens
        self._runs = runs

    def routes(self) -> list[Route]:
        """Returns their paths."""
        path = "/ui/connectors/{name}/what-if"
        return [
            Route(path, self.look),
            Route(path, self.ask, methods=["POST"]),
            Route(f"{path}/cancel", self.cancel, methods=["POST"]),
        ]

    def look(self, request: Request) -> Response:
        """Shows the form, and the question of the address with what has become of it. Raises NoConnectorError."""
        name, run_id = request.path_params["name"], request.query_params.get("run", "")
        since_ms = self._context.herder.connector(name).spec.since_ms
        run = self._runs.looked_at(run_id, name, since_ms) if run_id else None
        return self._page(request, run.changes if run else {}, run=run, is_gone=bool(run_id) and run is None)

    async def ask(self, request: Request) -> Response:
        """Asks what the form says, and leads to the page of the answer; if it may not be, says what is wrong with it.

        Raises NoConnectorError.
        """
        who, fields = await own_form(request, self._tokens)
        name = request.path_params["name"]
        spec = self._context.herder.connector(name).spec
        config, changes = spec.config, chosen_changes(spec.config, fields)
        faults = await self._context.slow.checks.run(_faults, config, changes) if changes else ()
        if faults:
            self._runs.cancel(fields.get("run", ""), name, spec.since_ms)  # the form that is shown has another question
            return await self._refused(request, changes, faults, HTTPStatus.BAD_REQUEST)
        try:
            run = self._runs.ask(config, changes, who.user, fields.get("run", ""), spec.since_ms)
        except BusyError as error:
            return await self._refused(request, changes, (Fault("", str(error)),), HTTPStatus.SERVICE_UNAVAILABLE)
        _log.info("what-if asked for on the page", connector=name, changes=changes, user=who.user)
        return self._led_to(name, run.id)

    async def cancel(self, request: Request) -> Response:
        """Has a question given up, and leads to its page."""
        _, fields = await own_form(request, self._tokens)
        name, run_id = request.path_params["name"], fields.get("run", "")
        self._runs.cancel(run_id, name, self._context.herder.connector(name).spec.since_ms)
        return self._led_to(name, run_id)

    def _led_to(self, name: str, run_id: str) -> Response:
        path = f"/ui/connectors/{quote(name, safe='')}/what-if?run={quote(run_id, safe='')}"
        return RedirectResponse(path, HTTPStatus.SEE_OTHER)

    async def _refused(
        self, request: Request, changes: Mapping[str, str], faults: tuple[Fault, ...], code: int
    ) -> Response:
        shown_code = HTTPStatus.OK if "hx-request" in request.headers else code  # htmx shows no answer of an error
        return await run_in_threadpool(self._page, request, changes, faults=faults, code=shown_code)

    def _page(
        self,
        request: Request,
        changes: Mapping[str, str],
        *,
        run: WhatIfRun | None = None,
        is_gone: bool = False,
        faults: tuple[Fault, ...] = (),
        code: int = HTTPStatus.OK,
    ) -> Response:
        name = request.path_params["name"]
        config = self._context.herder.connector(name).spec.config
        refused = {fault.key: fault.text for fault in faults}
        scope = present_values(config)[SCOPE]
        values = {
            "name": name,
            "tab": "what-if",
            "controls": shown_controls(config, changes, refused),
            "scopes": SCOPES,
            "scope": changes.get(SCOPE, scope),
            "present_scope": scope,
            "run": run,
            "is_gone": is_gone,
            "faults": tuple(errors.text_of(HTTPStatus.BAD_REQUEST, errors.sentence(fault)) for fault in faults),
            "ahead": self._runs.ahead_of(run) if run and run.stage is RunStage.WAITING else 0,
            "now_monotonic_ms": self._context.clock.monotonic_ms(),
            "shown": _shown(request, run),
            "written": written_changes(run.changes) if run else (),
        }
        return self._pages.page(request, "what_if.html", code, **values)


def _shown(request: Request, run: WhatIfRun | None) -> ShownReport | None:
    if run is None or run.stage is not RunStage.ANSWERED:
        return None
    return shown_report(messages.report_of(run.report), page_number(request))


def _faults(config: ConnectorConfig, changes: Mapping[str, str]) -> tuple[Fault, ...]:
    """Returns what is wrong with `changes` to a config."""
    if unread := unread_durations(changes):
        return unread
    try:
        changed_settings(config, changes, f"connector {config.name}")
    except FaultyConfigError as error:
        return error.faults
    except KeyfoldError as error:
        return (Fault("", str(error)),)
    return ()
