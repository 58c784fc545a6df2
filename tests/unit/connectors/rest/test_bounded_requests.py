"""Requests that take long to read for the few bytes that they are: anyone who can connect could send them."""

from __future__ import annotations

import logging
import socket
import time
from typing import Final

import h11
import pytest

from connectors.rest.bounded_requests import (
    CHUNK_BYTES,
    FREE_CHUNKS,
    HEAD_MAX,
    HEADERS_MAX,
    MOST_HEADERS,
    MOST_PARAMETERS,
    BoundedRequests,
)
from tests.support.kafka import wait_until
from tests.support.rest import RestWorker

READ_S: Final = 0.05
"""Processor time of a request that is refused; the smallest of the attacks below took 0.1 s, the largest a minute."""
HOST: Final = b"Host: localhost\r\n"
GET: Final = b"GET /health HTTP/1.1\r\n" + HOST
CHUNKED: Final = b"POST /connectors HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
REFUSED: Final = {
    "headers": GET + b"a:\r\n" * 40_000 + b"\r\n",
    "one header more": GET + b"a:\r\n" * MOST_HEADERS + b"\r\n",
    "a long header": GET + b"a:" + b"a" * HEADERS_MAX + b"\r\n\r\n",
    "a long line": b"GET /" + b"a" * HEAD_MAX + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "blanks and NUL": GET + b"a:" + b" " * (HEADERS_MAX - 100) + b"\0\r\n\r\n",
    "blanks and a form feed": GET + b"a:" + b"\t" * (HEADERS_MAX - 100) + b"\f\r\n\r\n",
    "blanks of many lines and NUL": GET + b"a:\r\n" + (b" " * 150 + b"\r\n") * 98 + b" \0\r\n\r\n",
    "chunks": CHUNKED + b"1\r\n \r\n" * (FREE_CHUNKS + 1),
    "a trailer": CHUNKED + b"0\r\n" + b"a:\n" * 80_000 + b"\r\n",
    "blanks and NUL in a trailer": CHUNKED + b"0\r\na:\r\nb:" + b" " * (HEADERS_MAX - 100) + b"\0\r\n\r\n",
    "parameters": b"GET /connectors?" + b"k&" * MOST_PARAMETERS + b" HTTP/1.1\r\n" + HOST + b"\r\n",
}
TAKEN: Final = {
    "headers": GET + b"a:\r\n" * (MOST_HEADERS - 1) + b"\r\n",
    "a long header": GET + b"a:" + b"a" * (HEADERS_MAX - 100) + b"\r\n\r\n",
    "a long line": b"GET /" + b"a" * (HEAD_MAX - 100) + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "small chunks": CHUNKED + b"1\r\n \r\n" * FREE_CHUNKS + b"0\r\n\r\n",
    "headers after chunks": CHUNKED + b"0\r\n\r\n" + GET + b"a:\r\n" * (MOST_HEADERS - 1) + b"\r\n",
    "many chunks": CHUNKED + b"%x\r\n%b\r\n" % (CHUNK_BYTES, b" " * CHUNK_BYTES) * 1_024 + b"0\r\n\r\n",
    "parameters": b"GET /connectors?" + b"k&" * (MOST_PARAMETERS - 1) + b" HTTP/1.1\r\n" + HOST + b"\r\n",
}


def read(sent: bytes) -> None:
    """Reads all that was `sent`, one request after the other."""
    connection = BoundedRequests(h11.SERVER)
    connection.receive_data(sent)
    event = connection.next_event()
    while event not in (h11.NEED_DATA, h11.PAUSED):
        if isinstance(event, h11.EndOfMessage):
            connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
            connection.send(h11.EndOfMessage())
            connection.start_next_cycle()
        event = connection.next_event()


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
def test_a_request_that_takes_long_to_read_is_refused_before_that(sent: bytes) -> None:
    """No thread of the worker gets on while a pattern is matched, and no other request while one is read."""
    began = time.thread_time()
    with pytest.raises(h11.RemoteProtocolError):
        read(sent)
    assert time.thread_time() - began < READ_S


@pytest.mark.parametrize("sent", TAKEN.values(), ids=TAKEN)
def test_the_largest_request_is_read(sent: bytes) -> None:
    """Each bound is for one request: a connection takes the next one of the same size."""
    read(sent * 2)


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
def test_a_refused_request_is_answered_by_400(worker: RestWorker, sent: bytes) -> None:
    """Or its connection is closed before it is sent to its end; others are answered."""
    with _connected(worker) as client:
        try:
            client.sendall(sent)
            assert client.recv(1_000).startswith(b"HTTP/1.1 400 ")
        except ConnectionError:
            pass
    assert worker.client.get("/health").status_code == 200


@pytest.mark.parametrize("waits", [True, False])
def test_a_body_that_is_at_fault_is_not_logged(
    worker: RestWorker, caplog: pytest.LogCaptureFixture, waits: bool
) -> None:
    """It ends the connection, after its answer or right before: strangers could fill the disk with lines."""
    with _connected(worker) as client:
        head = b"GET / HTTP/1.1\r\nHost: not.its.own\r\nTransfer-Encoding: chunked\r\n\r\n"  # answered at once
        client.sendall(head + (b"1\r\na\r\n" if waits else b"no chunk\r\n"))
        assert client.recv(1_000).startswith(b"HTTP/1.1 400 ")
        if waits:
            client.sendall(b"no chunk\r\n")
        wait_until(lambda: client.recv(1_000) == b"", "the connection is closed")
    assert worker.client.get("/health").status_code == 200
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def _connected(worker: RestWorker) -> socket.socket:
    host, port = worker.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)
