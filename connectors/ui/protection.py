"""Protects the page: what browsers may do with it, and forms that no other page can send.

A browser adds the password of HTTP Basic to any request to the worker, also to a form of another page. So a form
needs a token that only the worker's own pages have, and what browsers themselves say of its origin is looked at.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # Other sites learn nothing. With no-referrer, browsers would say `Origin: null` of the page's own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FIELD: Final = "form"
"""The name of the field of a form that has its token."""
_SAFE_SITES: Final = ("", "same-origin", "none")
_NO_STORE: Final = b"no-store"


class FormTokens:
    """Makes the token of a user's forms, under a key of this process: after a restart pages are loaded again."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def of(self, user: str) -> str:
        """Returns the token of `user`, "" without a log-in."""
        return hmac.digest(self._key, user.encode(), hashlib.sha256).hex()

    def check(self, headers: Mapping[str, str], user: str, given: str) -> None:
        """Raises HTTPException 403 unless a form with the token `given` comes from a page that `user` was given."""
        origin = headers.get("origin")
        own = origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()
        if not own or headers.get("sec-fetch-site", "") not in _SAFE_SITES:
            raise HTTPException(HTTPStatus.FORBIDDEN, "Forms of other pages may change nothing here.")
        if not hmac.compare_digest(given.encode(), self.of(user).encode()):
            said = "The form is older than the worker, or was made for somebody else. Load the page again, then repeat."
            raise HTTPException(HTTPStatus.FORBIDDEN, said)


class ProtectedAnswers:
    """Adds HEADERS to each answer, and keeps it out of caches unless it says itself how long it may be kept."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                names = {name for name, _ in message["headers"]}
                kept = [] if b"cache-control" in names else [(b"cache-control", _NO_STORE)]
                message = {**message, "headers": [*message["headers"], *own, *kept]}
            await send(message)

        await self._app(scope, receive, protected)
