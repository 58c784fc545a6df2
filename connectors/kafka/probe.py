"""Whether the brokers let a client in, asked before anything is done with it.

librdkafka tries again for ever where a password or a certificate is wrong, and tells the reason to a callback, not to
who waits: that one would see a time-out only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from connectors.config.librdkafka import ClientKind
from connectors.errors import NoConnectionError
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.consumers import Setting
from connectors.kafka.errors import cause

SURE_S: Final = 1.0
"""A refusal counts after this: meanwhile another of several brokers may let us in."""
_FIRST_WAIT_S: Final = 0.4
_POLL_S: Final = 0.05
_DOOR: Final = ("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.")
"""What a client's settings that decide whether it is let in begin with."""
_CLOSED: Final = "Connection refused"
_STATE: Final = re.compile(r" \(after \d+ms in state \w+\)")
_CHECKS: Final[Mapping[int, str]] = {
    KafkaError._AUTHENTICATION: "the user and password in {kind}.sasl.jaas.config, and {kind}.sasl.mechanism",
    KafkaError._SSL: "{kind}.security.protocol, {kind}.ssl.truststore.location, that the brokers' certificates name "
    "the hosts of bootstrap.servers, and {kind}.ssl.keystore.* where they ask for one",
}


class ErrorListener:
    """What librdkafka said went wrong: the last refusal, and the last other complaint."""

    def __init__(self) -> None:
        self.refusal: KafkaError | None = None
        self.complaint: KafkaError | None = None
        self._all_down = False
        self._only_closed = True

    @property
    def nobody(self) -> KafkaError | None:
        """The summary where nothing listens on the port of any host; None where anything else is wrong."""
        if self.refusal or not (self.complaint and self._all_down and self._only_closed):
            return None
        return KafkaError(KafkaError._ALL_BROKERS_DOWN, self.complaint.str())

    def __call__(self, error: KafkaError) -> None:
        """Keeps `error`; of one that only sums up others, that all of them are down."""
        if error.code() in _CHECKS or (error.code() == KafkaError._TRANSPORT and "SSL" in error.str()):
            code = error.code() if error.code() in _CHECKS else KafkaError._SSL
            self.refusal = KafkaError(code, error.str())
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._all_down = True
        else:
            self.complaint = error
            self._only_closed &= _CLOSED in error.str()


def reach_all(connector: str, clients: ClientSettings, deadline_s: float) -> None:
    """Makes sure that the brokers answer admin clients, consumers and producers; one question where all log in alike.

    Raises NoConnectionError, within two seconds where they refuse to let one in or nothing listens.
    """
    kinds: dict[ClientKind, dict[str, Setting]] = {
        "admin": clients.admin(),
        "consumer": clients.consumer(),
        "producer": clients.producer(),
    }
    asked = []
    for kind, config in kinds.items():
        door = {name: value for name, value in config.items() if name.startswith(_DOOR)}
        if door not in asked:
            asked.append(door)
            reach(kind, config, deadline_s, f"Connector {connector}: ")


def reach(kind: ClientKind, config: Mapping[str, Setting], deadline_s: float, where: str = "") -> None:
    """Makes sure that the brokers answer a client with `config`.

    Raises NoConnectionError, whose message begins with `where`.
    """
    client, heard = listening(config)
    try:
        first_answer(client, heard, deadline_s)
    except KafkaException as error:
        raise refused(cause(error), kind, str(config.get("bootstrap.servers")), where) from None


def listening(config: Mapping[str, Any]) -> tuple[AdminClient, ErrorListener]:
    """A client with `config`, and what it will hear."""
    heard = ErrorListener()
    settings: dict[str, Any] = {**config, "log_level": 0, "error_cb": heard}
    return AdminClient(settings), heard


def first_answer(client: AdminClient, heard: ErrorListener, deadline_s: float) -> ClusterMetadata:
    """What the brokers say of the cluster.

    Raises KafkaException: after SURE_S a refusal, or that nothing listens; after `deadline_s` what was heard last.
    """
    began = time.monotonic()
    wait = _FIRST_WAIT_S
    while True:
        try:
            return client.list_topics(timeout=min(wait, max(0.0, began + deadline_s - time.monotonic())))
        except KafkaException as error:
            client.poll(_POLL_S)
            waited = time.monotonic() - began
            certain = heard.refusal or heard.nobody
            if waited >= deadline_s or (certain is not None and waited >= SURE_S):
                raise KafkaException(certain or heard.complaint or cause(error)) from error
        wait *= 2


def refused(error: KafkaError, kind: ClientKind, bootstrap: str, where: str) -> NoConnectionError:
    """What `error` means to an operator of a client of this kind."""
    said = _STATE.sub("", error.str()).rstrip(".?")
    if error.code() in _CHECKS:
        check = _CHECKS[error.code()].format(kind=kind)
        return NoConnectionError(
            f"{where}{bootstrap} does not let the {kind} client in: {said}.",
            f"Check {check} (worker file), and {kind}.override.* (connector file).",
        )
    if error.code() == KafkaError._ALL_BROKERS_DOWN:
        return NoConnectionError(
            f"{where}Nothing listens at {bootstrap}: {said}.", "Start the brokers, or correct bootstrap.servers."
        )
    return NoConnectionError(
        f"{where}{bootstrap} did not answer the {kind} client: {said}.",
        "Check that the brokers of bootstrap.servers are up and can be reached, and that "
        f"{kind}.security.protocol is that of their listener.",
    )
