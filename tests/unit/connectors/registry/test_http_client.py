"""A request is over in time and of bounded size, whatever the server, or the name server, does."""

from __future__ import annotations

import gc
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest

from connectors.errors import RegistryError
from connectors.options import read
from connectors.registry.http_client import HttpAnswer, HttpClient, HttpRequest
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import OPTIONS, registry_settings
from tests.support.kafka import wait_until

TIMEOUT_S = 10.0
SHORT_S = 0.4
LATE_S = 8.0
"""By then (s) a request that may take SHORT_S has ended, on a machine that does other work as well."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def serving(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server that calls `answer` with each connection, on a thread; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=serve, args=(connection,), daemon=True).start()

        def serve(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                answer(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def drips(head: bytes) -> Callable[[socket.socket], None]:
    """Sends `head` at once, then a byte now and then, as long as anybody reads."""

    def answer(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(head)
        while True:
            connection.sendall(b" ")
            time.sleep(0.02)

    return answer


def floods(head: bytes, part: bytes) -> Callable[[socket.socket], None]:
    """Sends `head`, then `part` again and again, as fast as anybody reads."""

    def answer(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(head)
        while True:
            connection.sendall(part * 100)

    return answer


def says(*parts: bytes) -> Callable[[socket.socket], None]:
    """Sends `parts` for each request of a connection."""

    def answer(connection: socket.socket) -> None:
        while connection.recv(65_536):
            for part in parts:
                connection.sendall(part)

    return answer


def requests_under_way() -> int:
    return sum(thread.name == "http-request" for thread in threading.enumerate())


@pytest.fixture
def client() -> Iterator[HttpClient]:
    found = HttpClient(httpx.Client(trust_env=False), max_bytes=1_000)
    yield found
    found.close()
    wait_until(lambda: requests_under_way() == 0, "every thread of a request has ended", TIMEOUT_S)


def test_an_error_goes_with_the_one_who_was_asked_for_it(client: HttpClient) -> None:
    """A client that is kept, and asked again and again in vain, holds none of the errors, nor what had led to them."""

    def ask_in_vain() -> tuple[weakref.ref[object], weakref.ref[object]]:
        portion = {1, 2}  # what a frame that asks has at hand
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with pytest.raises(httpx.ConnectError) as raised:
            client.ask(HttpRequest("GET", f"http://127.0.0.1:{port}", {}), TIMEOUT_S)
        return weakref.ref(raised.value), weakref.ref(portion)

    kept = [reference for _ in range(3) for reference in ask_in_vain()]
    gc.collect()
    assert [reference() for reference in kept] == [None] * 6


@pytest.mark.parametrize(
    "answer",
    [
        drips(b"HTTP/1.1 200 "),
        drips(b"HTTP/1.1 200 OK\r\nX: "),
        drips(HEAD + b"Content-Length: 900\r\n\r\n"),
        floods(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        floods(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
        lambda connection: threading.Event().wait(TIMEOUT_S),
    ],
    ids=["first line", "headers", "body", "interim answers", "hints", "nothing"],
)
def test_a_request_is_given_up_in_time(client: HttpClient, answer: Callable[[socket.socket], object]) -> None:
    """However slowly the answer drips, or fast what comes before it; its thread ends, and the next has all its time."""
    with serving(answer) as url:
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(httpx.HTTPError):
                client.ask(HttpRequest("GET", url, {}), SHORT_S)
            assert SHORT_S / 2 < time.monotonic() - began < LATE_S
        wait_until(lambda: requests_under_way() == 0, "every thread of a request has ended", TIMEOUT_S)


def test_a_kept_connection_that_begins_to_drip_is_shut_down(client: HttpClient) -> None:
    """The socket is that of an earlier request then."""
    slow = threading.Event()

    def answer(connection: socket.socket) -> None:
        while connection.recv(65_536):
            if slow.is_set():
                drips(HEAD)(connection)
            connection.sendall(HEAD + b"Content-Length: 2\r\n\r\n{}")

    with serving(answer) as url:
        assert client.ask(HttpRequest("GET", url, {}), TIMEOUT_S) == HttpAnswer(200, b"{}")
        slow.set()
        with pytest.raises(httpx.HTTPError):
            client.ask(HttpRequest("GET", url, {}), SHORT_S)
        wait_until(lambda: requests_under_way() == 0, "its thread has ended", TIMEOUT_S)


@pytest.mark.parametrize(
    "parts",
    [
        (HEAD, b"Content-Length: 1001\r\n\r\n", b" " * 1_001),
        (HEAD, b"Transfer-Encoding: chunked\r\n\r\n", *[b"64\r\n" + b" " * 100 + b"\r\n"] * 11, b"0\r\n\r\n"),
        (HEAD, b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"),
        (b"HTTP/1.1 200 OK\r\n", *[b"X: " + b"x" * 60_000 + b"\r\n"] * 4),
        (b"no HTTP at all\r\n\r\n",),
        (HEAD, b"Transfer-Encoding: chunked\r\n\r\n", *[b"1;" + b"x" * 60_000] * 4),
        (HEAD, b"Transfer-Encoding: chunked\r\n\r\n0\r\n", *[b"X: " + b"x" * 60_000 + b"\r\n"] * 4),
        (HEAD, b"Content-Encoding: br, gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        (HEAD, b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ],
    ids=["large", "chunks", "compressed", "headers", "strange", "extensions", "trailers", "twice", "transfer"],
)
def test_an_answer_of_any_size_is_no_answer(client: HttpClient, parts: tuple[bytes, ...]) -> None:
    """Nor is one that would unfold to any size, as a compressed one does."""
    with serving(says(*parts)) as url, pytest.raises(httpx.HTTPError):
        client.ask(HttpRequest("GET", url, {}), TIMEOUT_S)


def test_a_name_server_that_hangs_costs_one_thread(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request to the same address is in vain until the first has ended; another address is asked as ever."""
    hang, asked = threading.Event(), []
    lookup = socket.getaddrinfo

    def getaddrinfo(host: str, *args: object, **named: object) -> object:
        if host == "slow":
            asked.append(host)
            assert hang.wait(TIMEOUT_S)
            raise socket.gaierror("no such name")
        return lookup(host, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    for _ in range(3):
        began = time.monotonic()
        with pytest.raises(httpx.HTTPError):
            client.ask(HttpRequest("GET", "http://slow:1", {}), SHORT_S)
        assert time.monotonic() - began < LATE_S
    assert (asked, requests_under_way()) == (["slow"], 1)
    with serving(says(HEAD + b"Content-Length: 2\r\n\r\n{}")) as url:
        assert client.ask(HttpRequest("GET", url, {}), TIMEOUT_S).status == 200
    hang.set()


def test_a_stop_ends_the_wait(client: HttpClient) -> None:
    """A connector that is told to stop is not held up by what it asks."""
    began, stopped = time.monotonic(), threading.Event()
    threading.Timer(0.1, stopped.set).start()
    with serving(drips(HEAD)) as url, pytest.raises(httpx.HTTPError):
        client.ask(HttpRequest("GET", url, {}), TIMEOUT_S, stopped.is_set)
    assert time.monotonic() - began < LATE_S


def test_a_registry_that_drips_is_asked_for_the_time_of_one_question() -> None:
    """All tries together; then it is a registry that does not answer."""
    with serving(drips(HEAD + b"Content-Length: 900\r\n\r\n")) as url:
        settings = registry_settings(read(OPTIONS, {"schema.registry.url": url}))
        registry = SchemaRegistry(settings, limit_s=SHORT_S)
        began = time.monotonic()
        with pytest.raises(RegistryError, match="does not answer"):
            registry.schema(1)
        assert time.monotonic() - began < LATE_S
        registry.close()


def test_an_answer_adds_nothing_to_later_requests() -> None:
    """Cookies of each would make all that follow longer, and each question slower."""
    asked: list[bytes] = []
    cookies = b"".join(b"Set-Cookie: c%d=x; Path=/\r\n" % number for number in range(1_000))

    def answer(connection: socket.socket) -> None:
        while request := connection.recv(65_536):
            asked.append(request)
            connection.sendall(HEAD + cookies + b'Content-Length: 15\r\n\r\n{"schema":"{}"}')

    with serving(answer) as url:
        registry = SchemaRegistry(registry_settings(read(OPTIONS, {"schema.registry.url": url})))
        for number in range(1, 4):
            assert registry.schema(number).text == "{}"
        registry.close()
    assert len({len(request) for request in asked}) == 1
    assert b"cookie" not in b"".join(asked).lower()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirection_is_not_followed(status: int) -> None:
    """Credentials and the worker's place in the network are for the registry that is named alone."""
    asked: list[bytes] = []
    with serving(lambda connection: asked.append(connection.recv(65_536))) as other:
        head = f"HTTP/1.1 {status} Moved\r\nLocation: {other}/schemas/ids/1\r\nContent-Length: 2\r\n\r\n{{}}"
        with serving(says(head.encode())) as url:
            registry = SchemaRegistry(registry_settings(read(OPTIONS, {"schema.registry.url": url})))
            with pytest.raises(RegistryError, match=f"with {status}"):
                registry.schema(1)
            registry.close()
    assert asked == []


def test_json_that_is_nested_without_end_is_no_answer() -> None:
    """Python's parser raises an error of its own for it."""
    body = b"[" * 100_000
    with serving(says(HEAD, b"Content-Length: %d\r\n\r\n" % len(body), body)) as url:
        registry = SchemaRegistry(registry_settings(read(OPTIONS, {"schema.registry.url": url})))
        with pytest.raises(RegistryError, match="and no JSON"):
            registry.schema(1)
        registry.close()
