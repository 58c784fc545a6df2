"""Forms of the page: who may send one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from connectors.rest.security import ROLE, USER, Role
from connectors.ui.forms import own_form
from connectors.ui.protection import FormTokens
from connectors.ui.visitor import Visitor


def _sent(tokens: FormTokens, role: Role) -> tuple[Visitor, Mapping[str, str]]:
    """What is read of a form that bob sends with his own token."""

    async def receive() -> Message:
        return {"type": "http.request", "body": f"form={tokens.of('bob')}&x=y".encode()}

    headers = [(b"content-type", b"application/x-www-form-urlencoded")]
    scope = {"type": "http", "method": "POST", "headers": headers, "state": {USER: "bob", ROLE: role}}
    return asyncio.run(own_form(Request(scope, receive), tokens))


def test_a_viewer_sends_no_form() -> None:
    """Not even with the token that would be his own; an admin does."""
    tokens = FormTokens()
    with pytest.raises(HTTPException, match="takes the role admin") as refused:
        _sent(tokens, Role.VIEWER)
    assert refused.value.status_code == 403
    who, fields = _sent(tokens, Role.ADMIN)
    assert (who.user, fields["x"]) == ("bob", "y")
