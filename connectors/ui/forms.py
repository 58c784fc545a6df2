"""Reads a form that a browser sends, once it is known that it is one of the page's own."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from connectors.errors import UsageError
from connectors.rest.bodies import SENT
from connectors.ui.protection import FIELD, FormTokens
from connectors.ui.visitor import Visitor, admin

_TYPE: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 20


async def own_form(request: Request, tokens: FormTokens) -> tuple[Visitor, Mapping[str, str]]:
    """Returns who has sent a form, and its fields.

    Raises HTTPException 403 for a viewer, and for a form that is not one of the page's; UsageError for what is none.
    """
    who = admin(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _TYPE:
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    body = (await request.body()).decode(errors="replace")
    setattr(request.state, SENT, body)
    try:
        fields = dict(parse_qsl(body, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise UsageError(f"The form has more than {_MOST_FIELDS} fields.", "Load the page again.") from None
    tokens.check(request.headers, who.user, fields.get(FIELD, ""))
    return who, fields
