"""Reads the bodies of requests: JSON only, at most a megabyte, numbers and booleans as their text."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from connectors.config.json_file import JsonError, parse_object
from connectors.errors import UsageError

_SHORT: Final = 16 << 10
"""Bytes of a body that are parsed on the event loop, in less than 1 ms; a megabyte takes up to 100 ms."""
_MOST_COMMAS: Final = 100_000
"""Commas of a body: names of 100,000 topics, or offsets of all the partitions that a megabyte has. The parser holds the
interpreter's lock, for some 40 ms with that many values."""
_QUOTED: Final = 250
"""Characters that a message quotes of what a client has sent: as many as the longest name of a topic has."""
_JSON: Final = "application/json"
_TRUE: Final = "true"
SENT: Final = "sent"
"""The name in a request's state under which its body is kept, for what an error says of it."""


async def json_object(request: Request) -> dict[str, Any]:
    """Reads the JSON object that `request` brings. Numbers come as their text.

    Raises UsageError for anything else, with the place; HTTPException 415 for another content type.
    """
    if request.headers.get("content-type", _JSON).partition(";")[0].strip().lower() != _JSON:
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    try:
        body = await request.body()
        setattr(request.state, SENT, body.decode(errors="replace"))
        if (commas := body.count(b",")) > _MOST_COMMAS:
            raise UsageError(
                f"The request's body has {commas} commas; allowed are {_MOST_COMMAS}.", "Send less at once."
            )
        return await run_in_threadpool(parse_object, body, "body") if len(body) > _SHORT else parse_object(body, "body")
    except JsonError as error:
        raise UsageError(f"The request's body: {error}", "Send a JSON object in UTF-8.") from None


def excerpt(value: object) -> str:
    """Returns what a message quotes of `value`: to mask a megabyte would keep others waiting."""
    text = str(value)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


def only(body: Mapping[str, Any], *names: str) -> None:
    """Raises UsageError if `body` has a field that is none of `names`."""
    for name in body:
        if name not in names:
            allowed = ", ".join(f'"{each}"' for each in names)
            raise UsageError(f'"{excerpt(name)}" is unknown here; allowed are {allowed}.', "Settings go into config.")


def flag(text: str | None) -> bool:
    """Returns whether a parameter of a query is true: in any case; anything else is false."""
    return text is not None and text.strip().lower() == _TRUE
