"""Sends a registry's client's HTTP requests, each of which is over in time and answered in bounded size.

httpx limits each step of a request (a connection, one piece of the answer), never all of it: a server that sends a
byte now and then is waited for without end, and so is a name server. So a request runs on a thread of its own, which is
given up when its time is over: its connection is shut down, so that the thread ends too, as soon as it has one.
"""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.cookiejar import CookieJar
from typing import Any, Final

import httpx
from msgspec import Struct

from connectors.clock import Deadline
from connectors.threads import let_go

MAX_BYTES: Final = 4 << 20
"""How large an answer may be: a registry that keeps schemas in a topic has none above a megabyte, and JSON of this size
takes a hundred megabytes at most once it is parsed."""
_LOOK_S: Final = 0.2
"""How often (s) a thread that waits for an answer looks whether it is to stop."""
_SOCKETS: Final = frozenset({"connection.connect_tcp.complete", "connection.start_tls.complete"})
"""The events of httpcore that bring the socket of a new connection."""


class NoCookies(CookieJar):
    """Takes no cookies: no registry needs them, and each answer could make all later requests longer."""

    def extract_cookies(self, response: object, request: object) -> None:
        """Leaves the cookies of an answer unread."""


class HttpRequest(Struct, frozen=True):
    """What is asked: `body` becomes JSON, bytes are sent as they are, None is no body."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: Any = None


class HttpAnswer(Struct, frozen=True):
    """What was answered."""

    status: int
    body: bytes


class UnsentRequestError(httpx.TransportError):
    """A request was not sent, as this process may have no more threads: that is no answer either."""


class AnswerTooLargeError(httpx.ReadError):
    """An answer is larger than a client reads; `status` is the one that it began with."""

    def __init__(self, status: int, max_bytes: int) -> None:
        super().__init__(f"it is larger than {max_bytes} bytes")
        self.status = status


class HttpClient:
    """Asks with `client`, for each address one request at a time. Used by one thread."""

    def __init__(self, client: httpx.Client, max_bytes: int = MAX_BYTES, connect_s: float = math.inf) -> None:
        self._client = client
        self._max_bytes = max_bytes
        # How long (s) a connection may take: at most half of the time of a request.
        self._connect_s = connect_s
        self._asking: dict[tuple[str, int | None], _Asking] = {}  # the newest request of each address

    def close(self) -> None:
        """Closes the connections."""
        for asking in self._asking.values():
            asking.give_up()
        self._client.close()

    def ask(self, request: HttpRequest, seconds: float, stopped: Callable[[], bool] = lambda: False) -> HttpAnswer:
        """Returns the answer to `request`. Raises httpx.HTTPError if there is none within `seconds`, or once stopped.

        A request that was given up and still has no connection (its name is being looked up) is the only one of its
        address until it ends, so that a name server that hangs costs one thread.
        """
        url = httpx.URL(request.url)
        address = (url.host, url.port)
        before = self._asking.get(address)
        deadline = Deadline(seconds)
        if before is not None and not before.over.wait(seconds):
            raise httpx.ConnectTimeout("an earlier request has no connection yet")
        asking = _Asking(self._client, request, self._max_bytes, before.socket if before else None)
        left = max(0.001, deadline.left_s)
        try:
            asking.start(left, min(self._connect_s, left / 2))
        except RuntimeError as error:
            raise UnsentRequestError(str(error)) from None
        self._asking[address] = asking  # only now: one without a thread never is over
        while not asking.over.wait(min(_LOOK_S, deadline.left_s)):
            if deadline.has_passed or stopped():
                asking.give_up()
                raise httpx.ReadTimeout("the answer was not complete in time")
        return asking.outcome()


class _Asking:
    """One request on its way. `over` is set when its thread has ended; `socket` is that of its connection, if known."""

    def __init__(self, client: httpx.Client, request: HttpRequest, max_bytes: int, kept: socket.socket | None) -> None:
        self.over = threading.Event()
        self.socket = kept  # of the request before: this one may use its connection again
        self._client = client
        self._request = request
        self._max_bytes = max_bytes
        self._given_up = False
        """Set by the thread that waits; the one that asks looks at it."""
        # One of the next two is set by the thread that asks, before it sets `over`.
        self._answer: HttpAnswer | None = None
        self._error: Exception | None = None

    def start(self, seconds: float, connect_s: float) -> None:
        """Begins; each step may take `seconds`, and to connect `connect_s`, as there may be several addresses."""
        limits = httpx.Timeout(seconds, connect=connect_s)
        threading.Thread(target=self._run, args=(limits,), name="http-request", daemon=True).start()

    def give_up(self) -> None:
        """Shuts its connection down: what its thread waits for ends at once."""
        self._given_up = True
        if self.socket is not None and not self.over.is_set():
            with suppress(OSError):  # not `SSLSocket.shutdown`, which takes TLS from under the thread that reads
                socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def outcome(self) -> HttpAnswer:
        """Returns the answer, or raises why there is none, once it is over and once only.

        A client keeps its newest request. An error that was raised holds each frame which it came through, with what
        they read; the frames hold the request before, and that its own error, without end. So none is kept here.
        """
        answer, error, self._error = self._answer, self._error, None
        try:
            if answer is None:
                raise error or httpx.ReadError("the request was given up")
            return answer
        finally:
            del error  # which this frame would hold, as the error holds the frame

    def _run(self, limits: httpx.Timeout) -> None:
        try:
            self._answer = self._ask(limits)
        except httpx.HTTPError as error:
            let_go(error)  # what it came from has frames of the transport
            self._error = error.with_traceback(None)
        except Exception as error:  # noqa: BLE001  # whatever an answer breaks is no answer
            self._error = httpx.ReadError(f"{type(error).__name__}: {error}"[:500])
        finally:
            self.over.set()

    def _ask(self, limits: httpx.Timeout) -> HttpAnswer:
        request = self._request
        with self._client.stream(
            request.method,
            request.url,
            content=request.body if isinstance(request.body, bytes) else None,
            json=None if isinstance(request.body, bytes) else request.body,
            headers={**request.headers, "Accept-Encoding": "identity"},  # what is compressed may unfold to any size
            timeout=limits,
            extensions={"trace": self._note},
        ) as response:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise httpx.DecodingError("it is compressed, which was not asked for")
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > self._max_bytes:
                    raise AnswerTooLargeError(response.status_code, self._max_bytes)
                if self._given_up:
                    raise httpx.ReadTimeout("it was given up")
            return HttpAnswer(response.status_code, bytes(body))

    def _note(self, event: str, info: Mapping[str, Any]) -> None:
        """Keeps the socket of a new connection."""
        if event in _SOCKETS:
            self.socket = info["return_value"].get_extra_info("socket")
            if self._given_up:
                raise httpx.ReadTimeout("it was given up")
