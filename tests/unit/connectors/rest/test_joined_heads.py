"""Answers of which the head and the body are written together."""

from __future__ import annotations

import socket
import struct
from http.client import HTTPConnection
from typing import Final

import h11
import pytest

from connectors.rest.server import JoinedHeads
from tests.support.rest import RestWorker

DATA_SEGMENTS_IN: Final = 152
"""Where `struct tcp_info` of linux/tcp.h has the segments with data that came in, a 32-bit number."""


def ask(connection: JoinedHeads) -> JoinedHeads:
    """Has the client of `connection` send a request."""
    connection.receive_data(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert isinstance(connection.next_event(), h11.Request)
    assert isinstance(connection.next_event(), h11.EndOfMessage)
    return connection


@pytest.mark.parametrize("pieces", [[], [b"abc"], [b"a", b"bc"]])
def test_a_head_is_written_with_what_comes_next(pieces: list[bytes]) -> None:
    """A piece of the body, or the end of an answer without one; nothing is written twice, or for the head alone."""
    connection, length = ask(JoinedHeads(h11.SERVER)), sum(map(len, pieces))
    head = h11.Response(status_code=200, headers=[("Content-Length", str(length))])
    written = [connection.send(event) for event in (head, *(h11.Data(data=piece) for piece in pieces))]
    written.append(connection.send(h11.EndOfMessage()))
    expected = b"HTTP/1.1 200 \r\nContent-Length: %d\r\n\r\n" % length
    first, *rest = pieces or [b""]
    assert written == [b"", expected + first, *rest, *([b""] if pieces else [])]


def test_the_next_answer_of_a_connection_has_its_own_head() -> None:
    """One that is kept open has one head after the other."""
    connection = JoinedHeads(h11.SERVER)
    for status in (200, 404):
        ask(connection)
        events = h11.Response(status_code=status, headers=[("Content-Length", "0")]), h11.EndOfMessage()
        assert b"".join(connection.send(event) or b"" for event in events).startswith(b"HTTP/1.1 %d" % status)
        connection.start_next_cycle()


def test_an_answer_comes_in_one_segment(worker: RestWorker) -> None:
    """So a client wakes up once for it, and the worker gives the interpreter's lock away once."""
    client = HTTPConnection("127.0.0.1", int(worker.url.rpartition(":")[2]))
    client.request("GET", "/")
    assert b"version" in client.getresponse().read()
    about = client.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    client.close()
    assert struct.unpack_from("I", about, DATA_SEGMENTS_IN) == (1,)
