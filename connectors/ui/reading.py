"""Answers what is only looked at: the overview, a connector, its settings, and what a deed means before it is done."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from connectors.errors import ConflictError, NoConnectorError
from connectors.progress.log_lines import LOG_LINES
from connectors.rest.context import RestContext
from connectors.rest.views import config
from connectors.runtime.supervised_connector import Connector
from connectors.ui.deeds import Deed, Deeds
from connectors.ui.detail import detail
from connectors.ui.drawn_rows import DrawnRows
from connectors.ui.history import SampleHistory
from connectors.ui.live.feeds import LiveFeeds
from connectors.ui.measurements import Measurements
from connectors.ui.offered import DELETE, OFFERS, offered
from connectors.ui.overview import overview
from connectors.ui.protection import FormTokens
from connectors.ui.shown_settings import setting_groups
from connectors.ui.static_files import static_files
from connectors.ui.stored_catalogs import StoredCatalogs
from connectors.ui.templates import render
from connectors.ui.visitor import admin, page_values

_YEAR: Final = "private, max-age=31536000, immutable"
_DIGITS_MAX: Final = 6
_IN_FILE: Final = "It is changed and deleted there: remove the file, and have the worker read its files again (SIGHUP)."


class ReadingPages:
    """Makes these pages; each of its methods runs on a thread of the framework's.

    None waits, but that of a connector that nothing runs: for its catalog, as StoredCatalogs does.
    """

    def __init__(
        self,
        context: RestContext,
        measurements: Measurements,
        tokens: FormTokens,
        deeds: Deeds,
        history: SampleHistory,
        live: LiveFeeds,
        stored: StoredCatalogs,
    ) -> None:
        self._context = context
        self._measurements = measurements
        self._tokens = tokens
        self._deeds = deeds
        self._history = history
        self._rows = DrawnRows(history)
        self._live = live
        self._stored = stored

    def routes(self) -> list[Route]:
        """Returns their paths."""
        return [
            Route("/ui", self._live.over(self.overview)),
            Route("/ui/connectors/{name}", self._live.over(self.connector)),
            Route("/ui/connectors/{name}/settings", self.settings),
            Route("/ui/connectors/{name}/log", self._live.over(self.log)),
            Route("/ui/connectors/{name}/resync", self.confirm),
            Route("/ui/connectors/{name}/delete", self.confirm),
            Route("/ui/static/{file}", static_file),
        ]

    def page(self, request: Request, template: str, code: int = HTTPStatus.OK, **values: Any) -> HTMLResponse:
        """Returns a page of the template, in the frame that all have."""
        deed = self._deed(request)
        frame = page_values(request, self._context, self._tokens)
        return HTMLResponse(render(template, **frame, deed=deed, **values), code)

    def overview(self, request: Request) -> Response:
        """Shows all connectors, what fails or is late first."""
        now_ms = self._context.clock.now_ms()
        wanted = request.query_params.get("state", "")
        shown = overview(self._measurements.rows(), now_ms, wanted, page_number(request))
        return self.page(request, "overview.html", overview=shown, drawn=self._rows.html)

    def connector(self, request: Request) -> Response:
        """Shows a connector."""
        connector = self._named(request)
        self._deeds.follow(connector.name, connector.status.state.value)
        measured, late_ms = self._measurements.of(connector), self._measurements.late_ms
        stored, page = self._stored.of(connector).state, page_number(request)
        shown = detail(connector, measured, self._context.clock.now_ms(), late_ms, page, stored)
        acts: dict[str, Any] = {
            "offers": offered(connector),
            "deeds": self._deeds.of(connector.name, connector.spec.since_ms, self._deed(request)),
        }
        samples = self._history.of(connector.name, connector.spec.since_ms)
        return self.page(request, "connector.html", name=connector.name, tab="", detail=shown, samples=samples, **acts)

    def settings(self, request: Request) -> Response:
        """Shows the settings of a connector, secrets hidden, each with its meaning."""
        connector = self._named(request)
        groups = setting_groups(config(connector))
        return self.page(request, "settings.html", name=connector.name, tab="settings", groups=groups)

    def log(self, request: Request) -> Response:
        """Shows the last lines that this worker has logged of a connector."""
        connector = self._named(request)
        lines = LOG_LINES.of(connector.name, connector.spec.since_ms)
        return self.page(request, "log.html", name=connector.name, tab="log", lines=lines)

    def confirm(self, request: Request) -> Response:
        """Says what a deed means, with a form that does it. Raises ConflictError if it is not done here."""
        connector, path = self._named(request), request.url.path.rpartition("/")[2]
        admin(request)
        if path == DELETE.path and connector.spec.file is not None:
            raise ConflictError(f"Connector {connector.name} is of the file {connector.spec.file}.", _IN_FILE)
        return self.page(request, "confirm.html", name=connector.name, offer=OFFERS[path])

    def _deed(self, request: Request) -> Deed | None:
        """Returns the deed of the address, as its connector is now; None if it names none that is kept."""
        deed = self._deeds.named(request.query_params.get("deed", ""))
        if deed is None or not deed.is_open:
            return deed
        with suppress(NoConnectorError):
            self._deeds.follow(deed.connector, self._context.herder.connector(deed.connector).status.state.value)
        return self._deeds.named(deed.id)

    def _named(self, request: Request) -> Connector:
        """Returns the connector that the path names. Raises NoConnectorError."""
        return self._context.herder.connector(request.path_params["name"])


def page_number(request: Request) -> int:
    """Returns the number of the page of a list that the address asks for, 1 if that is no number."""
    text = request.query_params.get("page", "1")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else 1


async def static_file(request: Request) -> Response:
    """Answers with a file of the page's own, which browsers keep: its address has its version."""
    file = static_files().get(request.path_params["file"])
    if file is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    is_current = request.query_params.get("v") == file.version
    headers = {"Cache-Control": _YEAR} if is_current else {}
    return Response(file.content, media_type=file.media_type, headers=headers)
