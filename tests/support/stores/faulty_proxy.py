"""A proxy on 127.0.0.1 in front of any object store that makes its answers fail, late or lost.

Requests pass as they are, with the Host header that was signed. What goes wrong stands in `Faults`, which a test
replaces while the proxy runs (`proxy.faults = Faults(...)`); chance is seeded, so that a run can be repeated.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from tests.support.stores.late_lists import LateLists

_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
_UPSTREAM_S: Final = 120.0


class Request(NamedTuple):
    """A request as a fault sees it; `path` has the query."""

    method: str
    path: str

    @property
    def writes(self) -> bool:
        """Whether it changes what the store holds."""
        return self.method not in ("GET", "HEAD")


class Answer(NamedTuple):
    """An answer of the store, or of the proxy in its place."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def any_request(_: Request) -> bool:
    """Concerns every request."""
    return True


class Faults(Struct, frozen=True, kw_only=True):
    """What goes wrong with the requests that it `concerns`.

    `refused` and `lost` are shares of the requests, from 0 to 1: the store never sees a refused one, which is answered
    with one of `statuses`; a lost one is done, and the connection closed in place of its answer. `lists_late_s`: lists
    leave out objects that were made in so many seconds before. `hangs`: requests are taken and never answered.
    `without` are names of headers, in small letters, that the store does not get to see.
    """

    refused: float = 0
    statuses: tuple[int, ...] = (503,)
    delay_s: float = 0
    lost: float = 0
    lists_late_s: float = 0
    hangs: bool = False
    without: frozenset[str] = frozenset()
    concerns: Callable[[Request], bool] = any_request


NO_FAULTS: Final = Faults()


class FaultyProxy:
    """The proxy; `url` is its endpoint, `counts` says how often each fault struck."""

    def __init__(self, upstream: str, seed: int = 0) -> None:
        parts = urlsplit(upstream)
        self.upstream = parts.hostname or "", parts.port or 80
        self.faults = NO_FAULTS
        self.counts: Counter[str] = Counter()
        self.lists = LateLists()
        self._chance = Random(seed)
        self._turn = threading.Lock()
        self._released = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}{parts.path}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it, and lets go what hangs."""
        self._released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def asked(self, headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Returns the headers that the store gets of a request's `headers`."""
        return list(headers)

    def answered(self, headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Returns the headers that the client gets of an answer's `headers`."""
        return list(headers)

    def strikes(self, what: str, share: float) -> bool:
        """Returns whether a fault with this share of the requests strikes now, and counts it."""
        with self._turn:
            struck = share > 0 and self._chance.random() < share
            self.counts[what] += struck
            return struck

    def hang(self) -> None:
        """Waits until the proxy ends."""
        self.counts["hangs"] += 1
        self._released.wait()

    def refusal(self, statuses: tuple[int, ...]) -> Answer:
        """Returns what a store answers that has too much to do."""
        with self._turn:
            status = self._chance.choice(statuses)
        body = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
        return Answer(status, [("Content-Type", "application/xml")], body)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        return type("Handler", (_Handler,), {"proxy": self})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: clients that go are what is tried here."""


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client, with one to the store."""

    proxy: FaultyProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    _store: http.client.HTTPConnection | None = None

    def _pass(self) -> None:
        proxy, faults = self.proxy, self.proxy.faults
        request = Request(self.command, self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not faults.concerns(request):
            faults = NO_FAULTS
        if faults.hangs:
            proxy.hang()
            self.close_connection = True
            return
        if faults.delay_s:
            time.sleep(faults.delay_s)
        if proxy.strikes("refused", faults.refused):
            self._answer(proxy.refusal(faults.statuses))
            return
        lose = proxy.strikes("lost", faults.lost)
        answer = self._ask(request, body, faults.without)
        if answer is None or lose:
            self.close_connection = True
            return
        self._answer(self._listed(request, answer, faults.lists_late_s))

    def _listed(self, request: Request, answer: Answer, late_s: float) -> Answer:
        lists = self.proxy.lists
        if request.writes:
            if answer.status < http.client.MULTIPLE_CHOICES:
                lists.changed(request.method, request.path)
            return answer
        if not late_s or not lists.is_list(request.path):
            return answer
        body = lists.as_of(request.path, answer.body, late_s)
        self.proxy.counts["late"] += body != answer.body
        return answer._replace(body=body)

    def _ask(self, request: Request, body: bytes, without: frozenset[str]) -> Answer | None:
        """Returns what the store answers; None where it closes the connection."""
        for again in (True, False):
            store = self._store or http.client.HTTPConnection(*self.proxy.upstream, timeout=_UPSTREAM_S)
            fresh, self._store = self._store is None, store
            try:
                store.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.proxy.asked(self.headers.items()):
                    if name.lower() not in without and name.lower() != "connection":
                        store.putheader(name, value)
                store.endheaders(body or None)
                found = store.getresponse()
                kept = [(name, value) for name, value in found.getheaders() if name.lower() not in _HOP]
                if request.method == "HEAD" and found.headers["Content-Length"]:
                    kept.append(("Content-Length", found.headers["Content-Length"]))
                return Answer(found.status, kept, found.read())
            except (OSError, http.client.HTTPException):
                store.close()
                self._store = None
                if fresh or not again:  # an old connection may have been closed as it was idle: once more on a new one
                    return None
        return None

    def _answer(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, value in self.proxy.answered(answer.headers):
            self.send_header(name, value)
        has_body = self.command != "HEAD" and answer.status != http.client.NO_CONTENT
        if has_body:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if has_body:
            self.wfile.write(answer.body)
        self.wfile.flush()

    def finish(self) -> None:
        """Closes both connections."""
        with suppress(OSError):
            super().finish()
        if self._store is not None:
            self._store.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815 - names of the standard library


@contextmanager
def faulty_proxy(upstream: str, seed: int = 0) -> Iterator[FaultyProxy]:
    """Runs one during the block."""
    proxy = FaultyProxy(upstream, seed)
    try:
        yield proxy
    finally:
        proxy.stop()
