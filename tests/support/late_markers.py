"""A broker that writes the markers of transactions late, when a test lets it.

A coordinator sends markers (`WriteTxnMarkers`) to the partitions' leaders over the inter-broker listener, itself too.
That listener is advertised as a gate here, which passes every request on but those, until it is opened.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from connectors.dev.embedded_kafka import EmbeddedKafka, free_port

WRITE_TXN_MARKERS: Final = 27
"""The key of that request in Kafka's protocol."""
_MAP: Final = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT"


class MarkerGate:
    """Passes what brokers send one another to the port `upstream`; holds requests for markers until it is open.

    `held` counts the requests that were held.
    """

    def __init__(self, upstream: int) -> None:
        self.held = 0
        self._upstream = upstream
        self._opened = threading.Event()
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.open()
        for each in (self._server, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def open(self) -> None:
        """Lets the markers through, those that were held and those that come."""
        self._opened.set()

    def close(self) -> None:
        """Holds the markers that come from now on."""
        self._opened.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                asking, _ = self._server.accept()
                answering = socket.create_connection(("127.0.0.1", self._upstream))
                self._sockets += [asking, answering]
                threading.Thread(target=self._pass_requests, args=(asking, answering), daemon=True).start()
                threading.Thread(target=self._pass_answers, args=(answering, asking), daemon=True).start()

    def _pass_requests(self, asking: socket.socket, answering: socket.socket) -> None:
        """Passes whole requests: a length of four bytes, then the request, which begins with its key in two."""
        with suppress(OSError), asking.makefile("rb") as requests:
            while len(length := requests.read(4)) == 4:
                request = requests.read(struct.unpack(">i", length)[0])
                if struct.unpack(">h", request[:2])[0] == WRITE_TXN_MARKERS and not self._opened.is_set():
                    self.held += 1
                    self._opened.wait()
                answering.sendall(length + request)

    @staticmethod
    def _pass_answers(answering: socket.socket, asking: socket.socket) -> None:
        with suppress(OSError):
            while part := answering.recv(65_536):
                asking.sendall(part)


@contextmanager
def broker_with_gate(folder: Path) -> Iterator[tuple[EmbeddedKafka, MarkerGate]]:
    """Runs a broker and the gate, open, that its markers go through."""
    port, internal = free_port(), free_port()
    with MarkerGate(internal) as gate:
        gate.open()
        properties = {
            "listeners": f"INTERNAL://127.0.0.1:{internal}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},INTERNAL://127.0.0.1:{gate.port}",
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": _MAP,
        }
        with EmbeddedKafka(folder, port, properties) as broker:
            yield broker, gate
