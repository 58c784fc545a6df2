"""Reads the bodies of requests: JSON only, at most a megabyte, numbers and booleans as their text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request
from starlette.exceptions import HTTPException

from connectors.errors import UsageError

_JSON: Final = "application/json"
_TRUE: Final = "true"


async def json_object(request: Request) -> dict[str, Any]:
    """Reads the JSON object that `request` brings. Numbers come as their text.

    Raises UsageError for anything else, HTTPException 415 for another content type.
    """
    if request.headers.get("content-type", _JSON).partition(";")[0].strip().lower() != _JSON:
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    body = await request.body()
    try:
        found = json.loads(body.decode(), parse_float=str, parse_int=str, parse_constant=str)
    except UnicodeDecodeError:
        raise UsageError("The request's body is not UTF-8.", "Send a JSON object in UTF-8.") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        said = f"The request's body is not JSON: {where}: {error.msg}." if body else "The request has no body."
        raise UsageError(said, "Send a JSON object.") from None
    except RecursionError:
        raise UsageError("The request's body is nested too deeply.", "Send a flat JSON object.") from None
    if not isinstance(found, dict):
        raise UsageError("The request's body is no JSON object.", "Send an object of settings: {…}.")
    return found


def only(body: Mapping[str, Any], *names: str) -> None:
    """Raises UsageError where `body` has a field that is none of `names`."""
    for name in body:
        if name not in names:
            allowed = ", ".join(f'"{each}"' for each in names)
            raise UsageError(f'"{name}" is unknown here; allowed are {allowed}.', "Settings go into config.")


def flag(text: str | None) -> bool:
    """Returns whether a parameter of a query is true: in any case; anything else is false."""
    return text is not None and text.strip().lower() == _TRUE
