"""Reads the bodies of requests: JSON only, at most a megabyte, numbers and booleans as their text."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request
from starlette.exceptions import HTTPException

from connectors.config.json_file import JsonError, parse_object
from connectors.errors import UsageError

_JSON: Final = "application/json"
_TRUE: Final = "true"


async def json_object(request: Request) -> dict[str, Any]:
    """Reads the JSON object that `request` brings. Numbers come as their text.

    Raises UsageError for anything else, with the place; HTTPException 415 for another content type.
    """
    if request.headers.get("content-type", _JSON).partition(";")[0].strip().lower() != _JSON:
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    try:
        return parse_object(await request.body(), "body")
    except JsonError as error:
        raise UsageError(f"The request's body: {error}", "Send a JSON object in UTF-8.") from None


def only(body: Mapping[str, Any], *names: str) -> None:
    """Raises UsageError if `body` has a field that is none of `names`."""
    for name in body:
        if name not in names:
            allowed = ", ".join(f'"{each}"' for each in names)
            raise UsageError(f'"{name}" is unknown here; allowed are {allowed}.', "Settings go into config.")


def flag(text: str | None) -> bool:
    """Returns whether a parameter of a query is true: in any case; anything else is false."""
    return text is not None and text.strip().lower() == _TRUE
