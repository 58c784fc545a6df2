"""Binds the worker's listeners, and says what a client may take of them.

They are bound before anything else starts, so that a port that is in use ends the worker at once.

The server's libraries are not imported here: the server's thread imports them while Spark starts.
"""

from __future__ import annotations

import re
import socket
from typing import Final

from msgspec import Struct

from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.fields import Listener
from connectors.config.worker import WorkerConfig
from connectors.rest.slow_calls import WAIT_S

CONNECTIONS: Final = 384
"""Connections that are served at once, and as many that wait until they are accepted. Another one takes the place of
one that waits for its client; if none does, its request is refused by 503, but for `/health`."""


class ClientLimits(Struct, frozen=True):
    """What a client may take of the REST interface."""

    # Connections that are served at once.
    connections: int = CONNECTIONS
    # How long (s) a client may take for its TLS handshake: three answers over the slowest network. asyncio's own
    # default is 60 s.
    handshake_s: float = 5.0
    # How long (s) a client may take to send the head and the body of a request.
    head_s: float = 10.0
    # How long (s) a client may take to read an answer, from when it first does not keep up.
    take_s: float = 60.0
    # How long (s) a request waits for a thread of its kind of slow calls.
    wait_s: float = WAIT_S
    # Bytes that all answers hold together while they are made, and until they are read (answers.py): what one of the
    # largest look-up takes to be made, or five of its answers that are not read.
    answer_bytes: int = 256 << 20

    def answered(self, path: str) -> int | None:
        """Returns how many requests may be answered at once for one of `path` to be taken; None if any number.

        The last are for who watches the worker, also while all else waits. Slow calls and log-ins at their most are
        fewer than the others (slow_calls.py, security.py). A probe that is refused ends the worker, so none is.
        """
        if path == "/health":
            return None
        return self.connections - (0 if WATCHED.fullmatch(path) else max(2, self.connections // _OF_WATCHED))


WATCHED: Final = re.compile("/|/metrics|/connectors/[^/]+(/tasks/[^/]+)?/status")
"""Paths by which a worker is watched; they are answered from memory."""
_OF_WATCHED: Final = 6
"""One of so many requests is for these: 64. Fewer: a burst of dashboards is refused."""

LIMITS = ClientLimits()


class BoundListener:
    """A listener with its socket bound; `url` has the port that it really has."""

    def __init__(self, key: str, listener: Listener, backlog: int = CONNECTIONS) -> None:
        self.key = key
        self.listener = listener
        try:
            family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
            self.socket = socket.create_server((listener.host, listener.port), family=family, backlog=backlog)
            # Connections inherit it. Without it a body waits 40 ms for the client's delayed acknowledgement of its
            # headers; asyncio sets it only if the socket's protocol is given, which create_server leaves out.
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            text = (
                f'"{listener}" cannot be listened on: {error.strerror or error}. Choose another port, or "" for none.'
            )
            raise FaultyConfigError("worker", [Fault(key, text)]) from None
        self.port: int = self.socket.getsockname()[1]

    @property
    def url(self) -> str:
        """Scheme, host and port, as the file has them."""
        return str(Listener(self.listener.scheme, self.listener.host, self.port))


def bind(worker: WorkerConfig, backlog: int = CONNECTIONS) -> tuple[BoundListener, ...]:
    """Binds `listeners` and `admin.listeners`. Raises FaultyConfigError with the key if a port is in use."""
    bound = [BoundListener("listeners", listener, backlog) for listener in worker.listeners]
    bound += [BoundListener("admin.listeners", listener, backlog) for listener in worker.admin_listeners or ()]
    return tuple(bound)


def advertised(worker: WorkerConfig, first: BoundListener) -> Listener:
    """Returns the address at which others reach the worker: `rest.advertised.*`, else the first listener's."""
    host = first.listener.host
    if host in ("0.0.0.0", "::"):  # noqa: S104  # it is asked whether it is that
        host = socket.gethostname()
    return Listener(
        worker.rest_advertised_listener or first.listener.scheme,
        worker.rest_advertised_host_name or host,
        worker.rest_advertised_port or first.port,
    )
