"""Who looks at the page: what the log-in of a request says, and what every page shows of it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request

from connectors.rest.context import RestContext
from connectors.rest.security import ROLE, USER, Role
from connectors.rest.views import VERSION
from connectors.ui.protection import FormTokens


class Visitor(Struct, frozen=True):
    """The user of a request, "" without a log-in, and whether he may change anything: a viewer may not."""

    user: str
    is_admin: bool


def visitor(request: Request) -> Visitor:
    """Returns who has sent a request; without `rest.auth` everyone may do everything."""
    state: dict[str, Any] = request.scope.get("state", {})
    return Visitor(state.get(USER, ""), state.get(ROLE, Role.ADMIN) is Role.ADMIN)


def admin(request: Request) -> Visitor:
    """Returns who has sent a request that changes something. Raises HTTPException 403 for a viewer."""
    who = visitor(request)
    if not who.is_admin:
        raise HTTPException(HTTPStatus.FORBIDDEN, "The role viewer may only look; this takes the role admin.")
    return who


def page_values(request: Request, context: RestContext, tokens: FormTokens) -> dict[str, Any]:
    """Returns what the frame of each page shows: the worker, who looks at it, and the token of the visitor's forms."""
    who = visitor(request)
    return {
        "worker": context.identity.worker_id,
        "version": VERSION,
        "health": context.health(),
        "user": who.user,
        "is_admin": who.is_admin,
        "token": tokens.of(who.user) if who.is_admin else "",
        "now_ms": context.clock.now_ms(),
        "path": request.url.path,
    }
