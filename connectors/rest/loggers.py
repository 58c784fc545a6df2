"""Answers `/admin/loggers`: the levels of the worker's loggers, changed while it runs."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from connectors.clock import SystemClock
from connectors.errors import UsageError
from connectors.rest import bodies, shapes
from connectors.rest.context import error_responses, json_body

router = APIRouter(prefix="/admin/loggers", tags=["admin"])

ROOT: Final = "root"
_OFF: Final = logging.CRITICAL + 10
_LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
    "OFF": _OFF,
}
"""Log4j's levels and Python's, as those of Python's loggers."""
_NAMES: Final = {
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
    _OFF: "OFF",
}
_changed: dict[str, int] = {}


@router.get("", response_model=dict[str, shapes.LoggerLevel])
def list_loggers() -> dict[str, shapes.LoggerLevel]:
    """Lists the loggers that have a level of their own, `root` among them."""
    names = (name for name in _existing() if logging.getLogger(name).level)
    return {name: _level(name) for name in (ROOT, *sorted(names))}


@router.get("/{logger}", response_model=shapes.LoggerLevel, responses=error_responses(404))
def get_logger(logger: str) -> shapes.LoggerLevel:
    """Shows the level of a logger, that of one above it where it has none."""
    if logger != ROOT and logger not in _existing():
        raise HTTPException(HTTPStatus.NOT_FOUND, f"Logger {logger} not found.")
    return _level(logger)


@router.put(
    "/{logger}",
    response_model=list[str],
    responses={204: {"description": "With scope=cluster."}, **error_responses(400, 404, 415)},
    openapi_extra=json_body("LoggerLevel"),
)
async def set_level(logger: str, request: Request, scope: str | None = None) -> Response:
    """Sets the level of a logger and those below it, until the worker ends; answers with their names."""
    body = await bodies.json_object(request)
    level = body.get("level")
    if level is None:
        raise UsageError("Desired 'level' parameter was not specified in request.", 'Send {"level": "DEBUG"}.')
    if not isinstance(level, str) or level.upper() not in _LEVELS:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"invalid log level '{level}'.")
    touched = sorted(name for name in {logger, *_existing()} if name == logger or _is_below(name, logger))
    now_ms = SystemClock().now_ms()
    for name in touched:
        _of(name).setLevel(_LEVELS[level.upper()])
        _changed[name] = now_ms
    if scope == "cluster":
        return Response(status_code=HTTPStatus.NO_CONTENT)
    return JSONResponse(touched)


def _existing() -> set[str]:
    return {name for name, one in logging.root.manager.loggerDict.copy().items() if isinstance(one, logging.Logger)}


def _is_below(name: str, logger: str) -> bool:
    """Returns whether `name` is below `logger`; of root's, only those that have a level of their own."""
    return bool(logging.getLogger(name).level) if logger == ROOT else name.startswith(f"{logger}.")


def _of(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level(name: str) -> shapes.LoggerLevel:
    level = _of(name).getEffectiveLevel()
    above = "OFF" if level > logging.CRITICAL else logging.getLevelName(level)
    return shapes.LoggerLevel(level=_NAMES.get(level, above), last_modified=_changed.get(name))
