"""Answers that go on for as long as the client looks: what they may take, and when they end."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from connectors.config.files import load_worker
from connectors.rest.answers import PIECE, CountedAnswers, HeldBytes, mark_streamed
from connectors.rest.listeners import ClientLimits, bind
from connectors.rest.server import RestServer
from tests.support.cli import worker_file
from tests.support.kafka import wait_until

EVENT = b"x" * (4 * PIECE)
LARGE = b"x" * (8 << 20)
"""More than the system takes for a client that does not read."""


@contextmanager
def streaming(
    folder: Path, limits: ClientLimits, pause_s: float = 0.01, event: bytes = EVENT
) -> Iterator[tuple[int, Callable[[], int]]]:
    """Serves an answer that goes on, below any path but /health; yields the port and who counts the streams."""
    streams = [0]

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/health":
            await PlainTextResponse("well")(scope, receive, send)
            return
        mark_streamed(scope)
        streams[0] += 1
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while not gone.done():
                await send({"type": "http.response.body", "body": event, "more_body": True})
                await asyncio.wait([gone], timeout=pause_s)
        finally:
            gone.cancel()
            streams[0] -= 1

    config = load_worker(worker_file(folder, listeners="http://127.0.0.1:0"))
    (bound,) = bind(config)
    server = RestServer(config, [(bound, CountedAnswers(stream, HeldBytes("Answers", 64 << 20)))], limits)
    server.start()
    try:
        yield bound.port, lambda: streams[0]
    finally:
        server.stop()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def look(port: int, buffer: int = 2_048) -> socket.socket:
    """Asks for the stream, and reads its beginning."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.settimeout(20)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET /ui HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in client.recv(100)
    return client


def test_who_does_not_read_is_dropped(tmp_path: Path) -> None:
    """An event has as long to be read as any answer."""
    with streaming(tmp_path, ClientLimits(take_s=0.5)) as (port, streams), look(port):
        wait_until(lambda: streams() == 0, "the stream has ended")


def test_who_reads_is_served_for_longer_than_an_answer_may_take(tmp_path: Path) -> None:
    """The time runs for what is sent and not read, not for the stream."""
    limits = ClientLimits(take_s=1.0)
    with streaming(tmp_path, limits, pause_s=0.1, event=LARGE) as (port, streams), look(port, 1 << 20) as client:
        until, read = time.monotonic() + 3.0, 0
        while time.monotonic() < until:
            read += len(client.recv(1 << 20))
        assert streams() == 1
        assert read > 3 * len(LARGE)


def test_streams_make_room_for_others(tmp_path: Path) -> None:
    """A browser asks again; a probe that is refused would end the worker."""
    with streaming(tmp_path, ClientLimits(connections=4), pause_s=0.2) as (port, streams):
        clients = [look(port) for _ in range(4)]
        assert httpx.get(f"http://127.0.0.1:{port}/health").text == "well"
        wait_until(lambda: streams() == 3, "one of them has made room")
        for client in clients:
            client.close()
        wait_until(lambda: streams() == 0, "a stream ends when its client has gone")


def test_connections_without_a_request_go_before_streams(tmp_path: Path) -> None:
    """Who opens connections and sends nothing does not end what others look at."""
    with streaming(tmp_path, ClientLimits(connections=4, head_s=600), pause_s=0.2) as (port, streams), look(port):
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        assert httpx.get(f"http://127.0.0.1:{port}/health").text == "well"
        assert streams() == 1
        for client in idle:
            client.close()


def test_streams_are_none_of_the_requests_that_are_answered(tmp_path: Path) -> None:
    """Of a worker that answers as many as it takes others are refused: streams fill it for nobody."""
    with streaming(tmp_path, ClientLimits(connections=4), pause_s=0.2) as (port, streams):
        clients = [look(port) for _ in range(4)]
        assert streams() == 4
        for client in clients:
            client.close()


@pytest.mark.parametrize(("room", "events"), [(1 << 20, 3), (PIECE, 1)])
def test_a_stream_without_room_ends(room: int, events: int) -> None:
    """It has begun, so that 503 comes too late; what it sends afterwards goes nowhere."""
    sent: list[Message] = []

    async def stream(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello", "more_body": True})
        for _event in range(2):
            await send({"type": "http.response.body", "body": EVENT, "more_body": True})

    async def send(message: Message) -> None:
        sent.append({**message, "body": bytes(message.get("body", b""))})

    async def receive() -> Message:
        raise AssertionError("nothing is asked for")

    asyncio.run(CountedAnswers(stream, HeldBytes("Answers", room))({"type": "http"}, receive, send))
    assert sent[0]["status"] == 200
    assert b"".join(each["body"] for each in sent[1:]) == b"hello" + EVENT * (events - 1)
    assert sent[-1].get("more_body", False) is (events == 3)
