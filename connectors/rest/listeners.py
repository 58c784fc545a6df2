"""Binds the worker's listeners before anything else starts, so that a port that is in use ends the worker at once.

The server's libraries are not imported here: the server's thread imports them while Spark starts.
"""

from __future__ import annotations

import socket
from typing import Final

from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.fields import Listener
from connectors.config.worker import WorkerConfig

CONNECTIONS: Final = 384
"""Connections that are served at once, and as many that wait until they are accepted. Another one takes the place of
one that waits for its client; if none does, it is answered with 503."""


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
