"""A connection counts before its TLS handshake is done: clients that never do it keep nobody out."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from connectors.rest.listeners import ClientLimits
from tests.support.certificates import certificate
from tests.support.kafka import wait_until
from tests.support.rest import RestWorker, limited_rest_worker

MOST = 8
"""As many connections as the worker of these tests serves; clients open four times as many."""
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01"


class TlsWorker:
    """A worker with https, and what its clients trust."""

    def __init__(self, worker: RestWorker, trust: ssl.SSLContext) -> None:
        self.herder = worker.herder
        self.url = worker.url
        self.trust = trust
        host, port = worker.url.removeprefix("https://").split(":")
        self.address = (host, int(port))

    def status(self) -> int:
        """Asks with a connection of its own."""
        return httpx.get(f"{self.url}/health", verify=self.trust, timeout=20).status_code

    def served(self) -> int:
        """Counts the connections that the worker, which is this process, has open."""
        there = psutil.Process().net_connections("tcp")
        return sum(one.laddr.port == self.address[1] and bool(one.raddr) for one in there)


@pytest.fixture
def limits() -> ClientLimits:
    """Slow clients are ended only if others need their place."""
    return ClientLimits(connections=MOST, handshake_s=600.0)


@pytest.fixture
def worker(tmp_path: Path, limits: ClientLimits) -> Iterator[TlsWorker]:
    key, own = certificate(tmp_path, "worker")
    settings = {
        "listeners": "https://127.0.0.1:0",
        "listeners.https.ssl.certificate.location": str(own),
        "listeners.https.ssl.key.location": str(key),
    }
    with limited_rest_worker(tmp_path, limits, **settings) as started:
        yield TlsWorker(started, ssl.create_default_context(cafile=str(own)))


@pytest.mark.parametrize("sent", [b"", HALF_A_HELLO])
def test_handshakes_that_never_end_keep_nobody_out(worker: TlsWorker, sent: bytes) -> None:
    """They count among the connections, of which the one that has waited longest makes room for a new one."""
    with ExitStack() as stack:
        for _ in range(4 * MOST):
            stack.enter_context(socket.create_connection(worker.address, timeout=20)).sendall(sent)
        wait_until(lambda: worker.served() <= MOST, "no more connections are open than are served")
        assert {worker.status() for _ in range(3 * MOST)} == {200}
        assert worker.served() <= MOST


@pytest.mark.parametrize("limits", [ClientLimits(handshake_s=0.3)])
def test_a_handshake_has_a_time_limit(worker: TlsWorker) -> None:
    """The client finds its connection ended, and the worker has it no more."""
    with socket.create_connection(worker.address, timeout=20) as client:
        client.sendall(HALF_A_HELLO)
        begun = time.monotonic()
        try:
            ended = client.recv(1) == b""
        except ConnectionResetError:
            ended = True
        assert ended
        assert time.monotonic() - begun < 10
        wait_until(lambda: worker.served() == 0, "the connection is closed")


def test_a_handshake_that_fails_is_forgotten(worker: TlsWorker) -> None:
    """A client that trusts another certificate, or speaks no TLS, takes nobody's place afterwards."""
    for _ in range(2 * MOST):
        with pytest.raises(httpx.ConnectError):
            httpx.get(worker.url, timeout=20)
        with pytest.raises(httpx.HTTPError):
            httpx.get(worker.url.replace("https", "http"), timeout=20)
    wait_until(lambda: worker.served() == 0, "their connections are closed")
    assert worker.status() == 200


def test_a_connection_that_was_waited_for_is_served_again_and_again(worker: TlsWorker) -> None:
    """One connection, many requests: the first is sent along with the end of the handshake."""
    with (
        socket.create_connection(worker.address, timeout=20) as plain,
        worker.trust.wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        for _ in range(5):
            client.sendall(b"GET /connectors HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            answer = b""
            while not answer.endswith(b"[]"):
                answer += client.recv(1_000)
            assert answer.startswith(b"HTTP/1.1 200 OK")


def test_a_request_that_is_answered_makes_no_room_for_handshakes(worker: TlsWorker) -> None:
    """Only what waits for its client is ended."""
    asked, release = threading.Event(), threading.Event()

    def late() -> list[str]:
        asked.set()
        assert release.wait(20)
        return ["late"]

    worker.herder.answer = late
    answers: list[object] = []

    def ask() -> None:
        answers.append(httpx.get(f"{worker.url}/connectors", verify=worker.trust, timeout=20).json())

    waits = threading.Thread(target=ask)
    waits.start()
    assert asked.wait(20)
    with ExitStack() as stack:
        for _ in range(4 * MOST):
            stack.enter_context(socket.create_connection(worker.address, timeout=20))
        wait_until(lambda: worker.served() <= MOST, "no more connections are open than are served")
        release.set()
        waits.join(20)
    assert answers == [["late"]]
