"""Puts the page over the worker's REST interface: `/ui`, and `/` for browsers; everything else goes on to REST."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from compactor.errors import KeyfoldError
from connectors.errors import DEFECT
from connectors.metrics.source_lag import SourceLagOf
from connectors.operations.offsets import kept_state
from connectors.operations.redrive.run import RedriveKafka
from connectors.rest import errors
from connectors.rest.app import has_encoded_slash
from connectors.rest.context import RestContext
from connectors.rest.slow_calls import RETRY_AFTER_S
from connectors.ui.accepts import prefers_html
from connectors.ui.acting import ActingPages
from connectors.ui.asked_runs import AskedRuns
from connectors.ui.creating import CreatingPages
from connectors.ui.deeds import Deeds
from connectors.ui.history import SampleHistory
from connectors.ui.letters.pages import LetterPages
from connectors.ui.letters.reads import LOOK_KAFKA, LetterReads
from connectors.ui.letters.runs import LetterRuns
from connectors.ui.live.feeds import LiveFeeds
from connectors.ui.looking_up import LookUpPages
from connectors.ui.measurements import Measurements
from connectors.ui.protection import FormTokens, ProtectedAnswers
from connectors.ui.reading import ReadingPages
from connectors.ui.stored_catalogs import StoredCatalogs
from connectors.ui.templates import render
from connectors.ui.visitor import page_values
from connectors.ui.what_if.pages import WhatIfPages
from connectors.ui.what_if.process import count_in_process
from connectors.ui.what_if.runs import Count, WhatIfRuns

PATH = "/ui"
_READS = ("GET", "HEAD")

_log = structlog.get_logger()


class WorkerPage:
    """The page of a worker, which all of its listeners share.

    `lag` is what is not read of a connector's sources; `count` answers what-if. `letters` is what dead
    letters are read and sent back with; None: their brokers.

    It works between `start` and `stop`; requests may come before and after.
    """

    def __init__(
        self,
        context: RestContext,
        lag: SourceLagOf,
        count: Count = count_in_process,
        letters: RedriveKafka | None = None,
    ) -> None:
        self._context = context
        self._tokens = FormTokens()
        measurements, deeds = Measurements(context, lag), Deeds()
        self._runs = AskedRuns(context, deeds)
        self._history = SampleHistory(measurements, context.clock)
        self._what_if = WhatIfRuns(context.worker, context.clock, count)
        self._live = LiveFeeds(self._tokens)
        stored = StoredCatalogs(partial(kept_state, context.worker), context.clock)
        reading = ReadingPages(context, measurements, self._tokens, deeds, self._history, self._live, stored)
        self._letter_reads = LetterReads(context, letters or LOOK_KAFKA)
        self._letter_runs = LetterRuns(context, deeds, letters)
        pages = (
            reading,
            LetterPages(context, reading, self._tokens, deeds, self._letter_reads, self._letter_runs),
            LookUpPages(context, reading),
            WhatIfPages(context, reading, self._tokens, self._what_if),
            CreatingPages(context, measurements, self._tokens, deeds),
            ActingPages(context, measurements, self._tokens, deeds, self._runs),
        )
        self._app = ProtectedAnswers(
            Starlette(
                routes=[route for each in pages for route in each.routes()],
                exception_handlers={
                    KeyfoldError: self._of_keyfold,
                    HTTPException: self._of_http,
                    Exception: self._of_defect,
                },
            )
        )

    def over(self, app: ASGIApp) -> ASGIApp:
        """Returns `app` with the page in front of it."""
        return _PageOver(app, self._app)

    def start(self) -> None:
        """Begins what the page does without being asked: to take samples."""
        self._history.start()

    def stop(self) -> None:
        """Ends that and what is sent to open pages, and takes back what was asked for and is not begun."""
        self._live.stop()
        self._history.stop()
        self._what_if.stop()
        self._runs.stop()
        self._letter_reads.stop()
        self._letter_runs.stop()

    def _of_keyfold(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, KeyfoldError)
        code, said = errors.refusal(request, error)
        response = self._error(request, code, said)
        if code == HTTPStatus.SERVICE_UNAVAILABLE:
            response.headers["Retry-After"] = str(RETRY_AFTER_S)
        return response

    def _of_http(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        said = "There is no such page." if error.status_code == HTTPStatus.NOT_FOUND else error.detail
        return self._error(request, error.status_code, said)

    def _of_defect(self, request: Request, error: Exception) -> Response:
        """Answers for what should never happen; the framework raises the error again, and the log has it."""
        _log.error("page failed", method=request.method, path=request.url.path, exc_info=error)
        return self._error(request, HTTPStatus.INTERNAL_SERVER_ERROR, DEFECT)

    def _error(self, request: Request, code: int, said: str) -> Response:
        values = page_values(request, self._context, self._tokens)
        title = HTTPStatus(code).phrase
        return HTMLResponse(render("error.html", **values, title=title, said=said), code)


class _PageOver:
    """Gives the page what is the page's, and the rest to the other application."""

    def __init__(self, app: ASGIApp, page: ASGIApp) -> None:
        self._app = app
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        path = _page_path(scope) if scope["type"] == "http" else None
        if path is None:
            await self._app(scope, receive, send)
        else:
            await self._page({**scope, "path": path}, receive, send)


def _page_path(scope: Scope) -> str | None:
    """Returns the page's path of a request, without a slash at its end; None if it is not for the page."""
    if has_encoded_slash(scope):  # REST refuses it
        return None
    path: str = scope["path"].rstrip("/")
    if path == PATH or path.startswith(f"{PATH}/"):
        return path
    accept = ",".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"accept")
    return PATH if path == "" and scope["method"] in _READS and prefers_html(accept) else None
