"""What requests and answers hold in memory: counted for all together, and given back when a client has read or gone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from starlette.responses import Response
from starlette.types import Message

from connectors.rest.answers import PIECE, CountedAnswers, HeldBytes
from connectors.rest.listeners import ClientLimits
from connectors.rest.security import BODY_MAX
from tests.support.kafka import wait_until
from tests.support.rest import RestWorker, message
from tests.unit.connectors.rest.test_record_requests import PATH, keep

Connect = Callable[[str], socket.socket]

LARGE, SMALL = 8 << 20, 1 << 10
"""Bytes of a record's value: more than the system takes for a client that does not read, and less."""
ROOM = 3 * LARGE
"""Bytes for the records of one large answer and for its JSON, and not for those of two."""


@pytest.fixture
def connect(worker: RestWorker) -> Iterator[Connect]:
    """Makes connections that have sent something, and read nothing."""
    host, port = worker.url.removeprefix("http://").split(":")
    with ExitStack() as stack:

        def connection(sent: str) -> socket.socket:
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            client.settimeout(20)
            client.connect((host, int(port)))
            client.sendall(sent.encode())
            return client

        yield connection


def asking(key: str) -> str:
    return f"GET {PATH}?key={key} HTTP/1.1\r\nHost: localhost\r\n\r\n"


def status_of(worker: RestWorker, key: str) -> int:
    return worker.ask("GET", PATH, params={"key": key}).status_code


@pytest.mark.parametrize("limits", [ClientLimits(answer_bytes=ROOM, take_s=600.0)])
def test_an_answer_that_nobody_reads_is_counted(worker: RestWorker, connect: Connect) -> None:
    """Another large one is refused until its client has gone; small ones need no room."""
    keep(worker, [(b"large", b"v" * LARGE), (b"small", b"v" * SMALL)])
    deaf = connect(asking("large"))
    assert b"200 OK" in deaf.recv(100)
    refusal = worker.ask("GET", PATH, params={"key": "large"})
    assert (refusal.status_code, int(refusal.headers["retry-after"]) > 0) == (503, True)
    assert "Answers would take" in message(refusal)
    assert status_of(worker, "small") == 200
    deaf.close()
    wait_until(lambda: status_of(worker, "large") == 200, "its room is given back")


@pytest.mark.parametrize("limits", [ClientLimits(answer_bytes=ROOM, take_s=1.0)])
@pytest.mark.parametrize("at_a_time", [0, 2 * PIECE])
def test_a_client_that_reads_too_slowly_is_ended(worker: RestWorker, connect: Connect, at_a_time: int) -> None:
    """Its time is for the whole answer: to read a little now and then keeps no room."""
    keep(worker, [(b"large", b"v" * LARGE)])
    slow, read = connect(asking("large")), 0
    assert b"200 OK" in slow.recv(100)

    def is_answered() -> bool:
        nonlocal read
        until = read + at_a_time
        with suppress(ConnectionError):
            while read < until and (data := slow.recv(until - read)):
                read += len(data)
        return status_of(worker, "large") == 200

    assert status_of(worker, "large") == 503
    wait_until(is_answered, "its connection is ended")
    assert read < LARGE


def test_bodies_that_are_not_sent_to_their_end_are_counted(worker: RestWorker, connect: Connect) -> None:
    """As what they become; small ones go on."""
    head = f"POST /connectors HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_MAX}\r\n\r\n"
    for _ in range(6):
        connect(head + " " * (BODY_MAX - 1))
    wait_until(lambda: b"503" in connect(head + " " * (BODY_MAX - 1)).recv(100), "there is no room for another one")
    assert worker.create("a").status_code == 201


@pytest.mark.parametrize(("most", "status", "pieces"), [(150_000, 200, 4), (100_000, 503, 1)])
def test_any_answer_is_counted_and_sent_in_pieces(most: int, status: int, pieces: int) -> None:
    """Also one that its endpoint has not counted while it was made."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append({**message, "body": bytes(message.get("body", b""))})

    async def receive() -> Message:
        raise AssertionError("nothing is asked for")

    app = CountedAnswers(Response(bytes(range(250)) * 800), HeldBytes("Answers", most))
    asyncio.run(app({"type": "http"}, receive, send))
    assert (sent[0]["status"], len(sent) - 1) == (status, pieces)
    if status == 200:
        assert b"".join(message["body"] for message in sent) == bytes(range(250)) * 800
        assert [message["more_body"] for message in sent[1:]] == [True] * (pieces - 1) + [False]


def test_what_is_held_is_given_back_whatever_happens() -> None:
    """A share that is refused keeps what it has; the end of its block gives all back."""
    held = HeldBytes("Answers", 200_000)
    with suppress(KeyError), held.share() as share:
        share.hold(200_000)
        raise KeyError
    with held.share() as first, held.share() as second:
        first.hold(200_000)
        with pytest.raises(Exception, match="allowed at once"):
            second.hold(200_000)
        second.hold(60_000)
        first.hold(0)
        second.hold(260_000)
