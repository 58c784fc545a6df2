"""Answers `/admin/loggers`: the levels of the worker's loggers, changed while it runs.

`admin.listeners` may have it on a listener that answers nothing else.
"""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from connectors.errors import UsageError
from connectors.rest import bodies, shapes
from connectors.rest.context import ContextDependency, error_responses, json_body
from connectors.rest.logger_levels import LEVELS

router = APIRouter(prefix="/admin/loggers", tags=["admin"])


@router.get("", response_model=dict[str, shapes.LoggerLevel])
def list_loggers(context: ContextDependency) -> dict[str, shapes.LoggerLevel]:
    """Lists the loggers that have a level of their own, `root` among them."""
    return context.loggers.all()


@router.get("/{logger}", response_model=shapes.LoggerLevel, responses=error_responses(404))
def get_logger(context: ContextDependency, logger: str) -> shapes.LoggerLevel:
    """Shows the level of a logger, that of one above it where it has none."""
    known = context.loggers.get(logger)
    if known is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"Logger {logger} not found.")
    return known


@router.put(
    "/{logger}",
    response_model=list[str],
    responses={204: {"description": "With scope=cluster."}, **error_responses(400, 404, 415)},
    openapi_extra=json_body("LoggerLevel"),
)
async def set_level(context: ContextDependency, logger: str, request: Request, scope: str | None = None) -> Response:
    """Sets the level of a logger and those below it, until the worker ends; answers with their names."""
    body = await bodies.json_object(request)
    level = body.get("level")
    if level is None:
        raise UsageError("Desired 'level' parameter was not specified in request.", 'Send {"level": "DEBUG"}.')
    if not isinstance(level, str) or level.upper() not in LEVELS:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"invalid log level '{bodies.excerpt(level)}'.")
    touched = await run_in_threadpool(context.loggers.set, logger, level.upper(), context.clock.now_ms())
    if scope == "cluster":
        return Response(status_code=HTTPStatus.NO_CONTENT)
    return JSONResponse(touched)
