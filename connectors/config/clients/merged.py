"""Merges the settings of librdkafka's clients: what keyfold pins, over the connector's overrides, over the worker's.

Names are Java's or librdkafka's (`client_translate`). What keyfold needs for its promises is pinned by the caller as
`base` and cannot be overridden: those names are refused in files (`client_names`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from connectors.config.clients import client_translate
from connectors.config.clients.client_names import ALIASES, FILES, NOT_OVER_REST, SYSTEMS
from connectors.config.clients.client_translate import EXPORT_KEYS, EXPORT_TRUST, STORE_TYPES
from connectors.config.clients.inline_pem import check_text
from connectors.config.clients.librdkafka import ClientKind
from connectors.config.clients.override_policy import weakened
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault, FaultyConfigError, RefusedValueError, refused
from connectors.config.secrets import is_placeholder, is_secret
from connectors.config.worker import WorkerConfig
from connectors.credentials import logins
from connectors.known_values import remember_setting
from connectors.placeholders import UNLIMITED, Limits, check_path, resolve

_WEAK: Final = (
    "protects the login less than the worker's {kind}.* settings do, and the login is the worker's; send one of the "
    "connector's own too, as {kind}.override.sasl.jaas.config, or make a connector file."
)


class _Given(msgspec.Struct, frozen=True):
    """A setting of librdkafka, and the key of the file that it comes from."""

    key: str
    text: str


def client_config(
    kind: ClientKind,
    worker: WorkerConfig,
    connector: ConnectorConfig | None,
    base: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Merges the settings for a confluent_kafka client of `kind`, secrets resolved: never log them.

    In order of weight: `base` (pinned by keyfold), the connector's overrides, the worker's settings, `defaults`
    (keyfold's choices that a user may change). `bootstrap.servers` comes from the worker. Raises ConfigError with all
    faults, each under its key.
    """
    limits = UNLIMITED if connector is None else connector.limits
    merged, faults = _layer(kind, f"{kind}.", getattr(worker, kind), UNLIMITED)
    if connector is not None:
        layer, refusals = _layer(kind, f"{kind}.override.", getattr(connector, f"{kind}_override"), limits)
        faults += refusals + (_weak_logins(kind, layer, merged) if limits.over_rest else [])
        merged |= layer
    faults += _combine(merged)
    if faults:
        raise FaultyConfigError(f'connector "{connector.name}"' if connector else "worker", faults)
    own = {"bootstrap.servers": worker.bootstrap_servers}
    given = {name: setting.text for name, setting in merged.items()}
    for login in logins(given):  # a half of it may be the worker's, the other one the connector's
        remember_setting(login, is_secret=True, over_rest=limits.over_rest)
    return {**_canonical(defaults or {}), **own, **given, **_canonical(base)}


def _canonical(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {ALIASES.get(name, name): value for name, value in settings.items()}


def _layer(
    kind: ClientKind, prefix: str, settings: Mapping[str, str], limits: Limits
) -> tuple[dict[str, _Given], list[Fault]]:
    """Returns the settings of one file by librdkafka's names; `prefix` is what their keys begin with there."""
    layer: dict[str, _Given] = {}
    faults: list[Fault] = []
    for name, text in settings.items():
        remember_setting(text, is_secret=is_secret(name), over_rest=limits.over_rest)
        try:
            translated = _resolved(kind, name, text, limits)
        except ValueError as error:
            is_refused, key = isinstance(error, RefusedValueError), prefix + name
            faults.append(refused(key, text, str(error)) if is_refused else Fault(key, str(error)))
            continue
        layer |= {key: _Given(prefix + name, value) for key, value in translated.items()}
    return layer, faults


def _weak_logins(kind: ClientKind, own: Mapping[str, _Given], worker: Mapping[str, _Given]) -> list[Fault]:
    """Returns a fault for each setting by which a connector made over REST shows the worker's login to others."""
    texts = [{name: given.text for name, given in layer.items()} for layer in (own, worker)]
    return [Fault(own[name].key, _WEAK.format(kind=kind)) for name in weakened(*texts)]


def _resolved(kind: ClientKind, name: str, text: str, limits: Limits) -> dict[str, str]:
    translated = client_translate.to_librdkafka(kind, name, resolve(text, limits))
    if limits.over_rest:
        _check_over_rest(text, translated, limits)
    return translated


def _check_over_rest(text: str, settings: Mapping[str, str], limits: Limits) -> None:
    """Raises ValueError for settings by which a user of REST could run code here, read what the worker can, or stop it.

    `text` is what they were made of; one that is a placeholder stands for what the worker's operator has written.
    """
    for name, value in settings.items():
        if not is_placeholder(text):
            check_text(name, value)
        if name in NOT_OVER_REST:
            raise RefusedValueError(f"{NOT_OVER_REST[name]}; set it in the worker file, or make a connector file.")
        if name in FILES and (value != SYSTEMS or not name.endswith("ca.location")):
            check_path(value, limits)


def _combine(merged: dict[str, _Given]) -> list[Fault]:
    """Settles, in place, what takes several settings: kinds of key stores, the way of authentication."""
    types = {name: merged.pop(name, None) for name in STORE_TYPES}
    faults = [*_trust(merged, types["ssl.truststore.type"]), *_keystore(merged, types["ssl.keystore.type"])]
    if "sasl.oauthbearer.token.endpoint.url" in merged:
        url = merged["sasl.oauthbearer.token.endpoint.url"]
        merged.setdefault("sasl.oauthbearer.method", _Given(url.key, "oidc"))
    protocol = merged.get("security.protocol")
    if protocol and protocol.text.startswith("sasl_") and "sasl.mechanism" not in merged:
        faults.append(Fault(protocol.key, "needs sasl.mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."))
    return faults


def _trust(merged: dict[str, _Given], kind: _Given | None) -> Iterator[Fault]:
    place = merged.get("ssl.ca.location")
    if place and place.key.endswith("ssl.truststore.location") and kind is None:
        yield Fault(place.key, f"needs ssl.truststore.type=PEM. Where it is a Java keystore (JKS), {EXPORT_TRUST}.")


def _keystore(merged: dict[str, _Given], kind: _Given | None) -> Iterator[Fault]:
    place = merged.get("ssl.keystore.location")
    if place and kind is None:
        text = f"needs ssl.keystore.type, PKCS12 or PEM. Where it is a Java keystore (JKS), {EXPORT_KEYS}."
        yield Fault(place.key, text)
    if place and kind and kind.text.upper() == "PEM":
        del merged["ssl.keystore.location"]
        merged |= {"ssl.certificate.location": place, "ssl.key.location": place}
