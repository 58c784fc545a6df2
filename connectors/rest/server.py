"""Serves REST on the worker's listeners, from a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import h11
import structlog
import uvicorn
from anyio import to_thread
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.worker import WorkerConfig
from connectors.errors import BusyError, UnreachableError
from connectors.kafka.retry import poll_until
from connectors.rest import errors
from connectors.rest.answers import is_streamed
from connectors.rest.bounded_requests import HEAD_MAX, BoundedRequests
from connectors.rest.listeners import LIMITS, BoundListener, ClientLimits
from connectors.threads import CancellableThread

_log = structlog.get_logger()

_WHOLE: Final = (h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR, h11.SWITCHED_PROTOCOL)
"""States of a client that has sent its request, or will send nothing more."""
_UNANSWERED: Final = (h11.IDLE, h11.SEND_RESPONSE)
"""States of the worker's side of a connection in which an answer may begin."""
STARTED_S: Final = 10.0
_LOOK_S: Final = 0.01
STOP_S: Final = 2
"""How long (s) requests that are under way may take when the worker ends."""
DATE_S: Final = 1.0
"""How long (s) the date in the head of answers stays the same: it counts seconds."""
IDLE_S: Final = 75
THREADS: Final = 8
"""Threads for what is answered from memory. It waits for nothing, so more of them only make each other, this thread and
the connectors wait: forty clients that listed a thousand connectors each had `/health` answered after 5 s."""
_OF_CLIENTS: Final = logging.getLogger(__name__)
"""Where uvicorn logs what a client does wrong, which the client is told: in the log each such request would be a line,
from anyone who can connect."""
_OF_CLIENTS.setLevel(logging.ERROR)
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class JoinedHeads(BoundedRequests):
    """Gives the head of an answer together with the first piece of its body.

    Both are then written by one call, and read by one: each call gives the interpreter's lock away, which a connector's
    thread may have for a while then. A head is followed by its body at once (answers.CountedAnswers).
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        # The head of an answer of which no piece was given yet.
        self._head = b""

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        """Returns the pieces that are to be written for `event`, which `send` joins: none for a head."""
        pieces = super().send_with_data_passthrough(event)
        if isinstance(event, h11.Response):
            self._head = b"".join(pieces or ())
            return []
        head, self._head = self._head, b""
        return pieces if pieces is None or not head else [head, *pieces]


class _Protocol(H11Protocol):
    """Ends a connection if its client takes too long to send a request, or to read an answer.

    If all connections are taken, a new one takes the place of that which has waited longest for its client: a few
    hundred that are kept open keep no other client out, and take no more of the process's files. With `tls`, a
    connection counts from before its handshake: it is taken without TLS, and given to HTTP after the handshake.
    """

    limits: ClientLimits
    tls: ssl.SSLContext | None
    _handshake: asyncio.Task[None] | None = None  # until it is done; afterwards kept, and of no use
    _early: bytes | None = None  # what came before HTTP had the connection; None without a handshake, and after it
    _slow: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _waits_since: float | None = None  # for its client, by the loop's clock; None while a request is answered

    def __init__(self, config: uvicorn.Config, *args: Any, **more: Any) -> None:
        super().__init__(config, *args, **more)
        self.conn = JoinedHeads(h11.SERVER, config.h11_max_incomplete_event_size or HEAD_MAX)
        self.app = partial(self._answer, self.app)

    def connection_made(self, transport: Any) -> None:
        """Begins a connection: its handshake is waited for, or its first request."""
        self.logger = _OF_CLIENTS
        if self.tls is not None and self._handshake is None:
            self._begin_handshake(transport, self.tls)
            return
        super().connection_made(transport)
        transport.set_write_buffer_limits(1, 0)  # `pause_writing` is: something is unread; 0 is never left with TLS
        self._note()
        self._arm()

    def _begin_handshake(self, transport: Any, tls: ssl.SSLContext) -> None:
        self.transport, self._early = transport, b""
        self.connections.add(self)
        self._note()
        self._handshake = self.loop.create_task(self._shake_hands(transport, tls))

    async def _shake_hands(self, transport: Any, tls: ssl.SSLContext) -> None:
        """Gives the connection to HTTP once its client has done the handshake; forgets it if the client has not."""
        secured = None if transport.is_closing() else await self._secured(transport, tls)
        early, self._early = self._early, None
        if secured is None or secured.is_closing():
            self.connections.discard(self)
            return
        self.connection_made(secured)
        if early:
            self.data_received(early)

    async def _secured(self, transport: Any, tls: ssl.SSLContext) -> asyncio.Transport | None:
        """Returns the connection with TLS; None if the handshake failed, took too long, or was ended from here."""
        try:
            limit_s = self.limits.handshake_s
            return await self.loop.start_tls(transport, self, tls, server_side=True, ssl_handshake_timeout=limit_s)
        except OSError as error:  # also what OpenSSL says, and the end of `handshake_s`: no client is left
            _log.debug("TLS handshake failed", error=repr(error))  # a reset connection has no words
            return None

    def _make_room(self) -> None:
        """Ends the connection that has waited longest for its client if there are too many, and this is not it alone.

        Called as each begins to wait, not only as each begins: more than are served may be there if all were answered.
        """
        if len(self.connections) <= self.limits.connections:
            return
        others = (other for other in self.connections if isinstance(other, _Protocol) and other is not self)
        waiting = [other for other in others if other.is_waiting]
        if waiting:
            oldest = min(waiting, key=lambda other: (other.is_streaming, other._waits_since or 0.0))
            self.connections.discard(oldest)  # it counts no more, and not only once the loop has come to its end
            oldest.transport.abort()

    async def _answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request by `app`, or by 503 if too many are being answered for one of its path."""
        most = self.limits.answered(scope["path"].rstrip("/") or "/")
        if most is not None and len(self.tasks) > most and (answered := self._answered()) > most:
            said = f"{answered - 1} requests are being answered, as many as the worker takes of these."
            refusal = errors.busy(BusyError(said, "Ask again later; /health, /metrics and states are answered."))
            await refusal(scope, receive, send)
            return
        await app(scope, receive, send)

    def _answered(self) -> int:
        """Returns how many requests are being answered, this one among them.

        A request that waits for its client is none of them: its connection makes room. If its client has gone it
        counts: what it asked for is still made.
        """
        under_way = sum(not task.done() for task in self.tasks)
        return under_way - sum(map(_waits_within_request, self.connections))

    @property
    def is_waiting(self) -> bool:
        """Whether the next step is its client's, or its answer may be ended at any time: the client asks again."""
        return self._waits_since is not None or self.is_streaming

    @property
    def is_streaming(self) -> bool:
        """Whether its answer goes on for as long as the client looks."""
        return self.has_request and is_streamed(self.cycle.scope)

    @property
    def has_request(self) -> bool:
        """Whether a request has begun that is not answered to its end."""
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]  # None at first

    def _note(self) -> None:
        """Notes since when the client is waited for: to send a whole request, or to read its answer."""
        if self.has_request and not self.flow.write_paused and self.conn.their_state in _WHOLE:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = self.loop.time()
            self._make_room()

    def pause_writing(self) -> None:
        """Begins the time in which the client has to read the whole answer, if it has not begun."""
        super().pause_writing()
        self._unread = self._unread or self.loop.call_later(self.limits.take_s, self.transport.abort)
        self._note()

    def resume_writing(self) -> None:
        """Ends that time if the client has read the whole answer, or all of one that goes on; or the system has it."""
        super().resume_writing()
        if not self.has_request or not self.cycle.response_started or self.is_streaming:
            self._forget_unread()
        self._note()

    def _forget_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self._unread = None

    def data_received(self, data: bytes) -> None:
        """Takes what a client sends: the time of a request runs from its first byte until it is whole."""
        if self._early is not None:
            self._early += data
            return
        self._arm()
        super().data_received(data)
        if self.conn.their_state in _WHOLE:
            self._disarm()
        self._note()

    def on_response_complete(self) -> None:
        """Ends the time of the request that was answered, and that of the answer if all of it is read."""
        self._disarm()
        if not self.flow.write_paused:
            self._forget_unread()
        super().on_response_complete()
        self._note()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no request, and ends the connection; the application answers it no more.

        If its answer has begun, uvicorn would fail here, and log that.
        """
        if self.conn.our_state in _UNANSWERED:
            super().send_400_response(msg)
        else:
            self.transport.close()
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends a connection."""
        self._disarm()
        self._forget_unread()
        super().connection_lost(exc)

    def _arm(self) -> None:
        if self._slow is None:
            self._slow = self.loop.call_later(self.limits.head_s, self._end_slow)

    def _disarm(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
        self._slow = None

    def _end_slow(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def _waits_within_request(connection: object) -> bool:
    """Returns whether a connection has a request that waits for its client: to send the rest, or to read its answer."""
    return isinstance(connection, _Protocol) and connection.is_waiting and connection.has_request


class _Server(uvicorn.Server):
    """Wakes up for a stop and for the date in its answers; uvicorn's own looks ten times a second if it is to end."""

    def __init__(self, config: uvicorn.Config, date_s: float) -> None:
        super().__init__(config)
        self._date_s = date_s
        self._woken = asyncio.Event()
        # The loop that serves, once it does: `end` is called by other threads.
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Waits until the server is to end; keeps the date of answers current meanwhile."""
        self._loop = asyncio.get_running_loop()  # before it looks: an end from here on wakes it
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), self._date_s)

    def end(self) -> None:
        """Has the server take no more connections and end, from any thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._woken.set)


class RestServer:
    """Serves `apps`, each on its listener, from `start` to `stop`; the date of answers is at most `date_s` old."""

    def __init__(
        self,
        worker: WorkerConfig,
        apps: Sequence[tuple[BoundListener, ASGIApp]],
        limits: ClientLimits = LIMITS,
        date_s: float = DATE_S,
    ) -> None:
        self._apps = apps
        configs = (_loaded(_config(worker, bound, app)) for bound, app in apps)
        self._servers = [_Server(_with_protocol(config, limits), date_s) for config in configs]
        self._thread = CancellableThread("rest", lambda _: self._run())

    def start(self) -> None:
        """Starts to answer, and returns once it does. Raises UnreachableError if it does not within STARTED_S."""
        self._thread.start()
        if not poll_until(bool, self._is_started, STARTED_S, _LOOK_S) or self._thread.failure is not None:
            raise UnreachableError(
                f"REST does not answer on {self._apps[0][0].url}: {self._thread.failure or 'it did not start'}.",
                "See the log; an empty `listeners` in the worker file runs the worker without REST.",
            )

    def _is_started(self) -> bool:
        return not self._thread.is_alive() or all(server.started for server in self._servers)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            _log.error("REST has ended, the connectors go on", error=str(error))
            raise

    def stop(self) -> None:
        """Stops to listen; requests that are under way may end."""
        for server in self._servers:
            server.end()
        self._thread.join(STOP_S + 1.0)

    async def _serve(self) -> None:
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        served = (
            server.serve(sockets=[bound.socket]) for server, (bound, _) in zip(self._servers, self._apps, strict=True)
        )
        await asyncio.gather(*served)


def _config(worker: WorkerConfig, bound: BoundListener, app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=HEAD_MAX,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=STOP_S,
        **(_tls(worker) if bound.listener.scheme == "https" else {}),
    )


def _loaded(config: uvicorn.Config) -> uvicorn.Config:
    """Returns `config` with its certificates read. Raises FaultyConfigError if they cannot be."""
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        ca, why = config.ssl_ca_certs or "none", error.strerror or error
        text = f"certificate {config.ssl_certfile}, key {config.ssl_keyfile} and CA {ca} cannot be used: {why}."
        raise FaultyConfigError("worker", [Fault("listeners.https.ssl.certificate.location", text)]) from None
    return config


def _with_protocol(config: uvicorn.Config, limits: ClientLimits) -> uvicorn.Config:
    """Returns `config`, of which TLS is done by the protocol: the server would not count a connection before that."""
    tls, config.ssl = config.ssl, None
    config.http_protocol_class = type("_LimitedProtocol", (_Protocol,), {"limits": limits, "tls": tls})
    return config


def _tls(worker: WorkerConfig) -> dict[str, Any]:
    ca = worker.listeners_ssl_ca
    return {
        "ssl_certfile": str(worker.listeners_ssl_certificate),
        "ssl_keyfile": str(worker.listeners_ssl_key),
        "ssl_ca_certs": None if ca is None else str(ca),
        "ssl_cert_reqs": _CLIENT_AUTH[worker.ssl_client_auth],
    }
