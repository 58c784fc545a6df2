"""What requests and answers hold in memory: counted for all together, and given back when a client has read or gone."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from connectors.rest.answers import HeldBytes
from connectors.rest.limits import ClientLimits
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
@pytest.mark.parametrize("reads", [0, 4_096])
def test_a_client_that_reads_too_slowly_is_ended(worker: RestWorker, connect: Connect, reads: int) -> None:
    """Its time is for the whole answer: to read a little now and then keeps no room."""
    keep(worker, [(b"large", b"v" * LARGE)])
    slow = connect(asking("large"))
    assert b"200 OK" in slow.recv(100)

    def is_answered() -> bool:
        with suppress(ConnectionError):
            slow.recv(reads)
        return status_of(worker, "large") == 200

    assert status_of(worker, "large") == 503
    wait_until(is_answered, "its connection is ended")


def test_bodies_that_are_not_sent_to_their_end_are_counted(worker: RestWorker, connect: Connect) -> None:
    """As what they become; small ones go on."""
    head = f"POST /connectors HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_MAX}\r\n\r\n"
    for _ in range(6):
        connect(head + " " * (BODY_MAX - 1))
    wait_until(lambda: b"503" in connect(head + " " * (BODY_MAX - 1)).recv(100), "there is no room for another one")
    assert worker.create("a").status_code == 201


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
