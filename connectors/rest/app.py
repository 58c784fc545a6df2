"""Puts the endpoints together with what holds for all of them: errors, paths, media types."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from fastapi import FastAPI
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from compactor.errors import KeyfoldError
from connectors.rest import errors
from connectors.rest.answers import share_of
from connectors.rest.context import RestContext
from connectors.rest.endpoints import connectors, lifecycle, loggers, offsets, plugins, records, worker_info
from connectors.rest.views import VERSION

_JSON: Final = ("*/*", "application/*", "application/json")


class PathsAsConnects:
    """Takes paths with a slash at their end, HEAD for GET, and refuses what accepts no JSON, as Kafka Connect does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if has_encoded_slash(scope):
            await errors.answer(HTTPStatus.NOT_FOUND, "HTTP 404 Not Found")(scope, receive, send)
            return
        changed = dict(scope)
        if len(scope["path"]) > 1:
            changed["path"] = scope["path"].rstrip("/") or "/"
        if scope["method"] == "HEAD":  # the server leaves the body out, by the scope that it has made
            changed["method"] = "GET"
        accepted = _accepted(scope)
        if accepted and not any(media in _JSON or media.startswith("text/") for media in accepted):
            await errors.answer(HTTPStatus.NOT_ACCEPTABLE, "HTTP 406 Not Acceptable")(changed, receive, send)
            return
        await self._app(changed, receive, send)


def has_encoded_slash(scope: Scope) -> bool:
    """Returns whether a path has a slash that is part of a name: nothing has such a name, and no path ends with it."""
    return b"%2f" in scope.get("raw_path", b"").lower()


class QuickLookUps:
    """Answers look-ups by their endpoint at once: to find its parameters takes FastAPI as long as the look-up."""

    def __init__(self, app: ASGIApp, context: RestContext) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        path = records.PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
        if path is None:
            await self._app(scope, receive, send)
            return
        query = QueryParams(scope["query_string"])
        try:
            response = await records.get_records(
                self._context,
                share_of(scope),
                path["connector"],
                keys=query.getlist("key"),
                topic=query.get("topic"),
                partition=query.get("partition"),
                is_hex=query.get("hex"),
                is_text=query.get("text"),
                is_typed=query.get("typed"),
            )
        except KeyfoldError as error:
            response = errors.of_keyfold(Request(scope), error)
        await response(scope, receive, send)


def _accepted(scope: Scope) -> list[str]:
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"]
    return [media.partition(";")[0].strip().lower() for text in values for media in text.split(",") if media.strip()]


def make_app(context: RestContext, *, admin: bool = True, others: bool = True) -> FastAPI:
    """Makes the application; `admin`: with `/admin`; `others`: with everything else."""
    app = FastAPI(
        title="keyfold",
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        openapi_url="/openapi.json",
    )
    app.state.context = context
    if others:
        for module in (worker_info, connectors, lifecycle, offsets, plugins, records):
            app.include_router(module.router)
        app.add_middleware(QuickLookUps, context=context)
    if admin:
        app.include_router(loggers.router)
    app.add_exception_handler(KeyfoldError, errors.of_keyfold)
    app.add_exception_handler(HTTPException, errors.of_http)
    app.add_exception_handler(ClientDisconnect, errors.of_disconnect)
    app.add_exception_handler(RuntimeError, errors.of_runtime)
    app.add_exception_handler(Exception, errors.of_defect)
    app.add_middleware(PathsAsConnects)
    return app
