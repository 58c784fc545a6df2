"""How many clients the REST interface serves at once, and for how long it waits for each."""

from __future__ import annotations

from msgspec import Struct

from connectors.rest.listeners import CONNECTIONS
from connectors.rest.slow_calls import WAIT_S


class ClientLimits(Struct, frozen=True):
    """What a client may take of the REST interface."""

    # Connections that are served at once. Slow calls and those that wait for one leave 64 of them (slow_calls.py).
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


LIMITS = ClientLimits()
