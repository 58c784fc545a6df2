"""Counts what requests and their answers hold in memory, and sends answers no faster than their clients read them.

Each request may hold a little uncounted, as connections are counted. What is more is taken from a bound for all
requests, before it is made, and given back once the answer is sent or its connection has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from connectors.errors import BusyError, UsageError
from connectors.rest import errors

PIECE: Final = 64 << 10
"""Bytes of an answer that are given to its connection at a time, and bytes that a request holds uncounted: of all
connections that are served 24 MiB. Smaller pieces take more turns of the event loop, each some 50 µs."""

LONGEST: Final = 64 << 20
"""Bytes that one answer may have: 300,000 states of tasks, or the records of the largest look-up as base64."""

_SHARE: Final = "answer_share"
"""The name of a request's share in its scope."""
_STREAMED: Final = "is_streamed"
"""The name under which a request's state says that its answer goes on for as long as the client looks."""


def mark_streamed(scope: Scope) -> None:
    """Says of a request that its answer goes on: its connection makes room for others, and has no time to end in."""
    scope.setdefault("state", {})[_STREAMED] = True


def is_streamed(scope: Mapping[str, Any]) -> bool:
    """Returns whether the answer of a request goes on for as long as the client looks."""
    return bool(scope.get("state", {}).get(_STREAMED))


class HeldBytes:
    """Counts the bytes that requests hold of `what`, of `most` at most; threads share it."""

    def __init__(self, what: str, most: int) -> None:
        self._what = what
        self._most = most
        # Of all shares together, without what each holds uncounted.
        self._held = 0
        self._lock = threading.Lock()

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Yields the share of a request; what it holds is given back at the end of the block."""
        share = Share(self)
        try:
            yield share
        finally:
            share.hold(0)

    def change(self, before: int, after: int) -> None:
        """Counts `after` bytes in place of `before`. Raises BusyError if there is no room for more."""
        with self._lock:
            held = self._held - before + after
            if after > before and held > self._most:
                raise BusyError(
                    f"{self._what} would take {held:,} bytes of memory; {self._most:,} are allowed at once.",
                    "Ask again later, and read each answer to its end.",
                )
            self._held = held


class Share:
    """What one request holds; to be used by one thread at a time."""

    def __init__(self, held: HeldBytes) -> None:
        self._all = held
        # Bytes beyond the PIECE that each request has.
        self._counted = 0

    def hold(self, size: int) -> None:
        """Holds `size` bytes, in place of those before. Raises BusyError if there is no room for more."""
        counted = max(0, size - PIECE)
        self._all.change(self._counted, counted)
        self._counted = counted

    def json_array(self, parts: Iterable[bytes]) -> Response:
        """Returns the answer of a JSON array of `parts`, which are counted as they are made.

        Raises UsageError if it becomes too long, BusyError.
        """
        return json_answer(b"[" + self._joined(parts) + b"]")

    def json_object(self, parts: Iterable[bytes]) -> Response:
        """Returns the answer of a JSON object of `parts`, each a name with its value, as `json_array` does."""
        return json_answer(b"{" + self._joined(parts) + b"}")

    def _joined(self, parts: Iterable[bytes]) -> bytes:
        made, size = [], 0
        for part in parts:
            made.append(part)
            size += len(part) + 1
            check_length(size)
            self.hold(2 * size)  # the parts, and what they are joined to
        return b",".join(made)


def check_length(size: int, action: str = "Ask for less at a time.") -> None:
    """Raises UsageError for an answer of `size` bytes, if that is more than one may have; `action`: what to do then."""
    if size > LONGEST:
        raise UsageError(f"The answer would take more than {LONGEST:,} bytes.", action)


def json_answer(body: bytes, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Response:
    """Returns the answer of a JSON text, which an endpoint that may be asked for a long one makes on a thread."""
    return Response(body, status, headers, "application/json")


def share_of(scope: Scope) -> Share:
    """Returns the share of the request with `scope`."""
    share: Share = scope["state"][_SHARE]
    return share


async def _share(request: Request) -> Share:
    return share_of(request.scope)


ShareDependency = Annotated[Share, Depends(_share)]


class CountedAnswers:
    """Gives each request its share, and sends its answer in pieces, each once the one before it is read.

    An answer for which there is no room is replaced by 503; one that has begun, as it goes on, ends.
    """

    def __init__(self, app: ASGIApp, held: HeldBytes) -> None:
        self._app = app
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._held.share() as share:
            scope.setdefault("state", {})[_SHARE] = share
            await self._app(scope, receive, _CountedAnswer(share, scope, receive, send).take)


class _CountedAnswer:
    """The answer of one request, of which `take` takes each message."""

    def __init__(self, share: Share, scope: Scope, receive: Receive, send: Send) -> None:
        self._share = share
        self._scope = scope
        self._receive = receive
        self._send = send
        # Kept until a body comes: an answer that is refused has another one. None once it is sent.
        self._head: Message | None = None
        self._is_refused = False

    async def take(self, message: Message) -> None:
        """Counts a message and sends it."""
        if message["type"] == "http.response.start":
            self._head = message
            return
        body = memoryview(message.get("body", b""))
        try:
            self._share.hold(len(body))
        except BusyError as error:
            await self._refuse(error)
        if not self._is_refused:
            await self._pass_on(body, goes_on=message.get("more_body", False))

    async def _refuse(self, error: BusyError) -> None:
        if not self._is_refused:
            self._is_refused = True
            if self._head is None:
                await self._send({"type": "http.response.body"})
            else:
                await errors.busy(error)(self._scope, self._receive, self._send)

    async def _pass_on(self, body: memoryview, *, goes_on: bool) -> None:
        if self._head is not None:
            await self._send(self._head)
            self._head = None
        for at in range(0, len(body) or 1, PIECE):
            is_more = goes_on or at + PIECE < len(body)
            await self._send({"type": "http.response.body", "body": body[at : at + PIECE], "more_body": is_more})
