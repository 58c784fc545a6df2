"""Decides which settings of Kafka clients a connector may override, by name and by what protects a login. Pure.

The policies (`connector.client.config.override.policy`) are Kafka Connect's (KIP-458,
org.apache.kafka.connect.connector.policy).

Who may make connectors over REST need not be who knows the worker's passwords. A connector that weakens what protects a
login on its way, and keeps the login, would have it sent to anyone who listens or answers on that way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, get_args

from connectors.config.clients import client_translate
from connectors.config.clients.librdkafka import ClientKind
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault
from connectors.config.secrets import is_secret
from connectors.config.worker import POLICY, OverridePolicy

PRINCIPAL: Final = frozenset(
    {
        "sasl.jaas.config",
        "sasl.mechanism",
        "security.protocol",
        "sasl.mechanisms",  # librdkafka's name of sasl.mechanism, and its form of a JAAS entry
        "sasl.username",
        "sasl.password",
    }
)
"""What `Principal` leaves to connectors: as whom their clients log in."""
_ALLOWED: Final[dict[OverridePolicy, str]] = {
    "principal": f"Allowed are {', '.join(sorted(PRINCIPAL))}",
    "none": "No override is allowed",
}


def override_faults(policy: OverridePolicy, connector: ConnectorConfig) -> Iterator[Fault]:
    """Yields a fault for each override of `connector` that `policy` does not allow."""
    if policy == "all":
        return
    overrides = {
        "consumer": connector.consumer_override,
        "producer": connector.producer_override,
        "admin": connector.admin_override,
    }
    for kind, settings in overrides.items():
        for name in settings:
            if policy == "none" or name not in PRINCIPAL:
                yield Fault(
                    f"{kind}.override.{name}",
                    f"The '{policy.capitalize()}' policy does not allow '{name}' to be overridden in the connector "
                    f"configuration. {_ALLOWED[policy]} by {POLICY} of the worker file; remove the key.",
                )


_PROTOCOL: Final = "security.protocol"
_MECHANISM: Final = "sasl.mechanism"
_STRENGTHS: Final[Mapping[str, tuple[str, Mapping[str, int]]]] = {
    _PROTOCOL: ("plaintext", {"plaintext": 0, "sasl_plaintext": 0, "ssl": 1, "sasl_ssl": 1}),
    # PLAIN and OAUTHBEARER show the login itself to who answers, SCRAM a proof that is as hard to invert as its hash.
    _MECHANISM: ("", {"PLAIN": 0, "OAUTHBEARER": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 3, "": 4}),
    "enable.ssl.certificate.verification": ("true", {"false": 0, "true": 1}),
    "ssl.endpoint.identification.algorithm": ("https", {"none": 0, "https": 1}),
}
"""How well each value protects a login, and the one that counts if none is set."""
_TRUST: Final = frozenset(
    {
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.ca.certificate.stores",
        "ssl.crl.location",
        "ssl.cipher.suites",
        "ssl.curves.list",
        "ssl.sigalgs.list",
        "https.ca.location",
        "https.ca.pem",
    }
)
"""Who is trusted, and by which ciphers: of two different values none is known to be the stronger one."""
PROTECTION: Final = _TRUST | _STRENGTHS.keys()
"""What decides who can read a login that is sent, by librdkafka's names."""


def weakened(own: Mapping[str, str], worker: Mapping[str, str]) -> Iterator[str]:
    """Yields the names in `own`, a connector's settings, by which a login of `worker` is less protected.

    Both have librdkafka's names. None if all that is secret of the worker's login is set by `own` too, or if the worker
    has none. The key of a certificate is no such login: it is never sent.
    """
    if any(_is_login(name) and name not in own for name in worker):
        yield from (name for name in own if _is_weaker(name, own[name], worker))


def _is_login(name: str) -> bool:
    return name.startswith("sasl.") and (is_secret(name) or name.startswith("sasl.oauthbearer.assertion."))


def _is_weaker(name: str, value: str, worker: Mapping[str, str]) -> bool:
    if name in _TRUST:
        return value != worker.get(name)
    if name not in _STRENGTHS:
        return False
    default, strengths = _STRENGTHS[name]
    return strengths.get(value, -1) < strengths.get(worker.get(name, default), -1)


def protection_of(secret: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Returns what protects the setting `secret` of a connector's file among `settings`: texts by librdkafka's names.

    Nothing if it is no setting of a client.
    """
    kind: ClientKind
    for kind in get_args(ClientKind):
        prefix = f"{kind}.override."
        if secret.startswith(prefix):
            own = {name.removeprefix(prefix): text for name, text in settings.items() if name.startswith(prefix)}
            named = {client_translate.target_or_none(kind, name): text for name, text in own.items()}
            return {name: text for name, text in named.items() if name in PROTECTION}
    return {}
