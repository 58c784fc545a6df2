"""Answers under the worker's own host names only: a page of the web has none of them.

A page may let its own name lead to the worker's address once it is loaded (DNS rebinding), and is then of the worker's
origin for its browser. Its name tells: that is no address, has a dot, and ends in a suffix that a registry hands out.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from connectors.config.fields import Listener
from connectors.config.worker import WorkerConfig

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_OF_NO_REGISTRY: Final = (".local", ".internal", ".localhost", ".svc")
"""Suffixes of names in a local network, and of Kubernetes' Services (`keyfold.data.svc.cluster.local`)."""


class OwnHosts:
    """Refuses requests under host names other than `names`.

    `has_others`: the listener is reached from other machines, so its addresses and short names are more than can be
    listed; those that no page can have are taken.
    """

    def __init__(self, app: ASGIApp, names: Collection[str], *, has_others: bool) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)
        self._has_others = has_others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        name = _name(Headers(scope=scope).get("host", "")) if scope["type"] == "http" else ""
        if scope["type"] != "http" or name in self._names or (self._has_others and _is_no_pages(name)):
            await self._app(scope, receive, send)
            return
        said = f'This worker does not answer under the host name "{name[:250]}".'
        action = " If it is its own, set rest.advertised.host.name to it." if self._has_others else ""
        await PlainTextResponse(f"{said}{action}\n", HTTPStatus.BAD_REQUEST)(scope, receive, send)


def own_hosts(app: ASGIApp, worker: WorkerConfig, listener: Listener) -> ASGIApp:
    """Returns `app` for the own hosts of a listener; as it is if each request has to log in, which no page can."""
    if listener.is_loopback:
        return OwnHosts(app, (*_LOOPBACK, listener.host), has_others=False)
    if worker.rest_auth == "basic":
        return app
    advertised = worker.rest_advertised_host_name
    names = (listener.host, socket.gethostname(), *([advertised] if advertised else []))
    return OwnHosts(app, names, has_others=True)


def _name(host: str) -> str:
    """Returns the name or address of a header `Host`, without its port."""
    inside, bracket, _ = host.removeprefix("[").partition("]")
    return (inside if bracket else host.partition(":")[0]).rstrip(".").lower()


def _is_no_pages(name: str) -> bool:
    """Returns whether no page of the web can have the host `name`."""
    if "." not in name or name.endswith(_OF_NO_REGISTRY):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
