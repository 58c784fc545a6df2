"""Checks whether the brokers let a client in, before anything is done with it.

librdkafka tries again for ever if a password or a certificate is wrong, and gives the reason to a callback only: the
caller that waits sees a time-out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from compactor.secret_forms import without
from connectors.clock import Deadline
from connectors.config.clients.librdkafka import ClientKind
from connectors.config.secrets import credentials_of
from connectors.errors import LoginRefusedError, NoConnectionError
from connectors.kafka.admin import new_client
from connectors.kafka.broker_text import shown
from connectors.kafka.client_settings import ClientSettings, Setting
from connectors.kafka.errors import cause
from connectors.threads import CancellableThread

SURE_S: Final = 1.0
"""A refusal counts after this time (s): until then another of several brokers may let us in."""
# How long (s) the first question waits before the listener is asked for a refusal; each next one waits twice as long.
_FIRST_WAIT_S: Final = 0.4
# How long (s) callbacks of errors are waited for after a question without an answer.
_POLL_S: Final = 0.05
SECURITY_PREFIXES: Final = ("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.")
"""The settings that decide whether the brokers let a client in begin with one of these."""
_CLOSED: Final = "Connection refused"
_STATE: Final = re.compile(r" \(after \d+ms in state \w+\)")
_CHECKS: Final[Mapping[int, str]] = {
    KafkaError._AUTHENTICATION: "the user and password in {kind}.sasl.jaas.config, and {kind}.sasl.mechanism",
    KafkaError._SSL: "{kind}.security.protocol, {kind}.ssl.truststore.location, that the brokers' certificates name "
    "the hosts of bootstrap.servers, and {kind}.ssl.keystore.* where they ask for one",
}


class ErrorListener:
    """Keeps the errors that librdkafka reports: the last `refusal`, and as `complaint` the last other one."""

    def __init__(self) -> None:
        self.refusal: KafkaError | None = None
        self.complaint: KafkaError | None = None
        # Whether librdkafka has said that no broker is connected.
        self._all_down = False
        # Whether every complaint so far was a closed port; any other one makes it False for good.
        self._only_closed = True

    @property
    def not_listening(self) -> KafkaError | None:
        """The error if nothing listens on the port of any host; None if anything else is wrong."""
        if self.refusal or not (self.complaint and self._all_down and self._only_closed):
            return None
        return KafkaError(KafkaError._ALL_BROKERS_DOWN, self.complaint.str())

    def __call__(self, error: KafkaError) -> None:
        """Keeps `error`; of `_ALL_BROKERS_DOWN`, which only sums up others, that it came."""
        if error.code() in _CHECKS or (error.code() == KafkaError._TRANSPORT and "SSL" in error.str()):
            code = error.code() if error.code() in _CHECKS else KafkaError._SSL
            self.refusal = KafkaError(code, error.str())
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._all_down = True
        else:
            self.complaint = error
            self._only_closed &= _CLOSED in error.str()


def probe_all(
    connector: str,
    clients: ClientSettings,
    deadline_s: float,
    ask: Callable[[ClientKind, Mapping[str, Setting], float, str], None] | None = None,
) -> None:
    """Checks that the brokers answer admin clients, consumers and producers; once for those that log in alike.

    `ask` checks one of them. Raises NoConnectionError, within two seconds if they refuse to let one in or nothing
    listens.
    """
    kinds: dict[ClientKind, dict[str, Setting]] = {
        "admin": clients.admin(),
        "consumer": clients.consumer(),
        "producer": clients.producer(),
    }
    probed = []
    for kind, config in kinds.items():
        security = {name: value for name, value in config.items() if name.startswith(SECURITY_PREFIXES)}
        if security not in probed:
            probed.append(security)
            (ask or probe)(kind, config, deadline_s, f"Connector {connector}: ")


def probe(kind: ClientKind, config: Mapping[str, Setting], deadline_s: float, prefix: str = "") -> None:
    """Checks that the brokers answer a client of `kind` with `config`, within `deadline_s` seconds.

    Raises NoConnectionError; its message begins with `prefix`.
    """
    client, listener = listening(config)
    try:
        first_answer(client, listener, deadline_s)
    except KafkaException as error:
        raise refused(cause(error), kind, config, prefix) from None


def listening(config: Mapping[str, Any]) -> tuple[AdminClient, ErrorListener]:
    """Makes an admin client with `config`, and the listener to the errors that it reports."""
    listener = ErrorListener()
    return new_client({**config, "log_level": 0, "error_cb": listener}), listener


def first_answer(
    client: AdminClient, listener: ErrorListener, deadline_s: float, sure_s: float = SURE_S
) -> ClusterMetadata:
    """Returns the cluster's metadata as soon as a broker answers.

    Raises KafkaException: after `sure_s` a refusal, or that nothing listens; after `deadline_s` the last error.
    """
    deadline, sure = Deadline(deadline_s), Deadline(sure_s)
    wait = _FIRST_WAIT_S
    while True:
        try:
            return client.list_topics(timeout=min(wait, deadline.left_s))
        except KafkaException as error:
            client.poll(_POLL_S)
            certain = listener.refusal or listener.not_listening
            if deadline.has_passed or (certain is not None and sure.has_passed):
                raise KafkaException(certain or listener.complaint or cause(error)) from error
        wait *= 2


def refused(error: KafkaError, kind: ClientKind, config: Mapping[str, Setting], prefix: str) -> NoConnectionError:
    """Returns the typed error for `error` of a client of `kind` with `config`; its message begins with `prefix`.

    librdkafka quotes the broker, or the server of tokens, which may repeat what it was sent.
    """
    bootstrap = str(config.get("bootstrap.servers"))
    said = shown(without(_STATE.sub("", error.str()), credentials_of(config))).rstrip(".?")
    if error.code() in _CHECKS:
        check = _CHECKS[error.code()].format(kind=kind)
        return LoginRefusedError(
            f"{prefix}{bootstrap} does not let the {kind} client in: {said}.",
            f"Check {check} (worker file), and {kind}.override.* (connector file).",
        )
    if error.code() == KafkaError._ALL_BROKERS_DOWN:
        return NoConnectionError(
            f"{prefix}Nothing listens at {bootstrap}: {said}.", "Start the brokers, or correct bootstrap.servers."
        )
    return NoConnectionError(
        f"{prefix}{bootstrap} did not answer the {kind} client: {said}.",
        "Check that the brokers of bootstrap.servers are up and can be reached, and that "
        f"{kind}.security.protocol is that of their listener.",
    )


class BrokerProbe:
    """Probes the brokers of several connectors at once, each in a thread, while something else is under way.

    `probes`: by connector; each raises UnreachableError if its brokers do not answer.
    """

    def __init__(self, probes: Mapping[str, Callable[[], None]]) -> None:
        self._threads = {name: _thread(name, probe) for name, probe in probes.items()}
        for thread in self._threads.values():
            thread.start()

    @property
    def has_answer(self) -> bool:
        """Whether the brokers of at least one connector have answered."""
        return any(thread.failure is None and not thread.is_alive() for thread in self._threads.values())

    def silent(self) -> dict[str, BaseException]:
        """Returns the error of each connector once all probes have failed; nothing before, nor if one succeeded."""
        errors = {name: thread.failure for name, thread in self._threads.items() if thread.failure is not None}
        return errors if len(errors) == len(self._threads) else {}


def _thread(connector: str, probe: Callable[[], None]) -> CancellableThread:
    return CancellableThread(f"probe-{connector}", lambda _: probe())
