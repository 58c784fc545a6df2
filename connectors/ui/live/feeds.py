"""Keeps open pages up to date: each page is made once in a while for all who look at it, and what has changed is sent.

A browser asks for the page's own address and accepts `text/event-stream`. All of it is on the server's event loop, but
for the making of a page, which a thread of the framework does. Nothing is made unless somebody looks.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias
from urllib.parse import parse_qsl

import structlog
from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from compactor.errors import KeyfoldError
from connectors.errors import BusyError
from connectors.rest.answers import mark_streamed
from connectors.rest.security import ROLE, USER, Role
from connectors.ui.live.changes import RenewedText, change, event, everything, renewed
from connectors.ui.protection import FormTokens
from connectors.ui.visitor import visitor

EVERY_S: Final = 2.0
"""How often (s) an open page is renewed: a person who waits for a state sees it at once, or nearly."""
RESTS: Final = 20
"""For so many times as long as the making of the pages took, the next one waits: sixty different pages, or a machine
that is busy, make it less often, not the worker slower."""
MOST_STREAMS: Final = 64
"""Pages that are renewed at once: as many connections are left to who watches the worker (rest/listeners.py)."""
STREAM_S: Final = 600.0
"""How long (s) a stream goes on until the browser asks again, with its password: who may look no more sees no more."""
MEDIA_TYPE: Final = "text/event-stream"
_HELLO: Final = b"retry: 3000\n: hello\n\n"
_HEADERS: Final = {"X-Accel-Buffering": "no"}  # a proxy would keep events until there are many

MakesPage: TypeAlias = Callable[[Request], Response]

_log = structlog.get_logger()


class LiveLimits(Struct, frozen=True):
    """What open pages may take of the worker."""

    every_s: float = EVERY_S
    streams: int = MOST_STREAMS
    stream_s: float = STREAM_S


LIMITS: Final = LiveLimits()

_FeedKey: TypeAlias = tuple[str, tuple[tuple[str, str], ...], bool]


class _Feed:
    """A page that somebody looks at: how it was made last, and the event that came to it; on the event loop."""

    def __init__(self, make: Callable[[], Response]) -> None:
        self.make = make
        self.viewers = 0
        # How often there was something new; the text and the event of the last time.
        self.version = 0
        self.text: RenewedText | None = None
        self.change = b""
        self.is_over = False
        self.has_failed = False
        # Set, and replaced, after each round.
        self.round = asyncio.Event()

    def renew(self, text: RenewedText) -> None:
        """Takes the page as it is now."""
        changed = change(self.text, text)
        if changed:
            self.text, self.change = text, changed
            self.version += 1

    def since(self, version: int) -> bytes:
        """Returns the event that brings a page of `version` up to date."""
        assert self.text is not None, "it is made once there is a version"
        return self.change if version == self.version - 1 else everything(self.text)

    def end_round(self) -> None:
        """Lets all who look go on."""
        last, self.round = self.round, asyncio.Event()
        last.set()


class LiveFeeds:
    """The pages that are looked at; to be used on one event loop, but for `stop`."""

    def __init__(self, tokens: FormTokens, limits: LiveLimits = LIMITS) -> None:
        self._tokens = tokens
        self._limits = limits
        # A page is made for this user, whom there is not: its token is replaced by that of who looks.
        self._nobody = secrets.token_hex(16)
        self._feeds: dict[_FeedKey, _Feed] = {}
        # Streams that are sent, also those of feeds that are over.
        self._streams = 0
        self._maker: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Whether the worker ends; the event is set then, on the event loop.
        self._is_over = False
        self._ended = asyncio.Event()

    def over(self, make: MakesPage) -> Callable[[Request], Awaitable[Response]]:
        """Returns the endpoint of a page that `make` makes, which is renewed for those who ask for that."""

        async def endpoint(request: Request) -> Response:
            if request.method == "GET" and MEDIA_TYPE in request.headers.get("accept", ""):
                return _Stream(self, request, make)
            return await run_in_threadpool(make, request)

        return endpoint

    def stop(self) -> None:
        """Ends all streams, and lets no other begin; from any thread."""
        self._is_over = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._ended.set()
        for feed in self._feeds.values():
            feed.end_round()

    @contextmanager
    def joined(self, request: Request, make: MakesPage) -> Iterator[_Feed]:
        """Yields the feed of the page that a request asks for.

        Raises:
            BusyError: as many pages are open as may be, or the worker ends.
        """
        if self._is_over:
            raise BusyError("The worker ends, and renews no pages.", "Load the page again once the worker runs.")
        if self._streams >= self._limits.streams:
            said = f"{self._streams} pages are renewed, as many as the worker renews at once."
            raise BusyError(said, "Close some, or load the page again by hand.")
        asked = self._asked_by_nobody(request)
        query = sorted(parse_qsl(request.url.query))
        key = (request.url.path, tuple(query), visitor(request).is_admin)
        feed = self._feeds.setdefault(key, _Feed(lambda: make(asked)))
        feed.viewers += 1
        self._streams += 1
        self._begin()
        try:
            yield feed
        finally:
            feed.viewers -= 1
            self._streams -= 1
            if feed.viewers == 0:
                self._forget(key, feed)

    def _forget(self, key: _FeedKey, feed: _Feed) -> None:
        """Hands the feed out no more; there may be another one for the page by now."""
        if self._feeds.get(key) is feed:
            del self._feeds[key]

    def _asked_by_nobody(self, request: Request) -> Request:
        """Returns the request without who has sent it, but for the role."""
        role = Role.ADMIN if visitor(request).is_admin else Role.VIEWER
        return Request({**request.scope, "headers": [], "state": {USER: self._nobody, ROLE: role}})

    def _begin(self) -> None:
        if self._maker is None or self._maker.done():
            self._loop = asyncio.get_running_loop()
            self._maker = self._loop.create_task(self._make_all())

    async def events(self, feed: _Feed, request: Request) -> AsyncIterator[bytes]:
        """Yields the events for one who looks, until the feed or the worker ends, or it is time to ask again."""
        own, nobodys = (self._tokens.of(user).encode() for user in (visitor(request).user, self._nobody))
        seen, until = 0, asyncio.get_running_loop().time() + self._limits.stream_s
        yield _HELLO
        while not (feed.is_over or self._is_over) and asyncio.get_running_loop().time() < until:
            if feed.version == seen:
                await feed.round.wait()
                continue
            now, seen = feed.since(seen), feed.version
            yield now.replace(nobodys, own)
        if feed.is_over:
            yield event("over", "")

    async def _make_all(self) -> None:
        """Makes all pages that are looked at, again and again until none is."""
        loop = asyncio.get_running_loop()
        while self._feeds and not self._is_over:
            began = loop.time()
            for key, feed in [*self._feeds.items()]:
                await _make(feed)
                if feed.is_over:
                    self._forget(key, feed)
            rest_s = max(self._limits.every_s, RESTS * (loop.time() - began))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), rest_s)


async def _make(feed: _Feed) -> None:
    """Makes a page; one that there is no more ends its feed. A defect is logged once, and the page left as it was."""
    try:
        answer = await run_in_threadpool(feed.make)
        feed.renew(renewed(bytes(answer.body).decode()))
    except (KeyfoldError, HTTPException):
        feed.is_over = True
    except Exception:  # noqa: BLE001  # what is open stays as it was, and is made again
        if not feed.has_failed:
            _log.exception("page is not renewed")
        feed.has_failed = True
    feed.end_round()


class _Stream(StreamingResponse):
    """The answer that renews a page; it counts as an open page while it is sent."""

    def __init__(self, feeds: LiveFeeds, request: Request, make: MakesPage) -> None:
        self._feeds = feeds
        self._request = request
        self._make = make
        super().__init__((), headers=_HEADERS, media_type=MEDIA_TYPE)  # the events come with the feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        with self._feeds.joined(self._request, self._make) as feed:
            mark_streamed(scope)
            self.body_iterator = self._feeds.events(feed, self._request)
            await super().__call__(scope, receive, send)
