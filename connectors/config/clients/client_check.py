"""Checks whether librdkafka takes the settings of every client, by asking it, without a broker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from compactor.secret_forms import forms_of, without
from connectors.config.clients import librdkafka
from connectors.config.clients.client_names import FILES, SYSTEMS
from connectors.config.clients.client_translate import JAVA
from connectors.config.clients.librdkafka import ClientKind
from connectors.config.clients.merged import client_config
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.secrets import credentials_of, is_secret
from connectors.config.worker import WorkerConfig
from connectors.credentials import is_of_login
from connectors.placeholders import has_placeholder

_BASES: Final[dict[ClientKind, dict[str, Any]]] = {
    "consumer": {"group.id": "keyfold-check"},
    "producer": {"transactional.id": "keyfold-check"},
    "admin": {},
}
_STORE: Final = "ssl.keystore.location with ssl.keystore.type=PEM"
_JAVA: Final = {
    **{name: java for java, name in JAVA.items() if name.startswith("ssl.")},
    "ssl.certificate.location": _STORE,
    "ssl.key.location": _STORE,
}
"""What an operator may have written for a name of librdkafka's."""


def client_faults(worker: WorkerConfig, connector: ConnectorConfig | None) -> tuple[Fault, ...]:
    """Returns faults in the clients' settings of worker and connector together, secrets resolved, files of keys read.

    Makes a client of each kind that knows no broker, and closes it: nothing goes over the network.
    """
    return tuple(fault for kind in _BASES for fault in _of_kind(kind, worker, connector))


def _of_kind(kind: ClientKind, worker: WorkerConfig, connector: ConnectorConfig | None) -> Iterator[Fault]:
    try:
        config = client_config(kind, worker, connector, _BASES[kind])
    except FaultyConfigError as error:
        yield from error.faults
        return
    quoted = _quoted(kind, worker, connector)
    refusal = _unreadable(config) or _refusal(
        kind, {name: value for name, value in config.items() if name != "bootstrap.servers"}, quoted
    )
    if refusal:
        text = f"librdkafka cannot take these settings: {_with_java(refusal)}"
        yield Fault(f"{kind}.override" if connector else kind, text)


def _unreadable(config: Mapping[str, Any]) -> str | None:
    """Returns a sentence for a file of keys or certificates that cannot be read: OpenSSL's own words do not name it.

    A pipe or a device is none: librdkafka would wait for it, and all threads of this process for librdkafka.
    """
    places = {name: Path(str(value)) for name, value in config.items() if name in FILES and value != SYSTEMS}
    return next(
        (f"{name} names nothing that can be read." for name, path in places.items() if not _readable(path)), None
    )


def _readable(path: Path) -> bool:
    return os.access(path, os.R_OK) and (path.is_file() or path.is_dir())


def _quoted(kind: ClientKind, worker: WorkerConfig, connector: ConnectorConfig | None) -> list[str]:
    """Returns the settings with placeholders that librdkafka might quote: all but secrets, and of those OAuth's."""
    settings = {f"{kind}.{name}": text for name, text in getattr(worker, kind).items()}
    if connector is not None:
        settings |= {f"{kind}.override.{name}": text for name, text in getattr(connector, f"{kind}_override").items()}
    quotable = {name: text for name, text in settings.items() if not is_secret(name) or "oauthbearer" in name}
    return [name for name, text in quotable.items() if has_placeholder(text)]


def _refusal(kind: ClientKind, config: Mapping[str, Any], quoted: list[str]) -> str | None:
    """Returns why librdkafka refuses `config`; not in its words if they may hold what a placeholder stands for."""
    text = librdkafka.refusal(kind, config)
    if text and quoted:
        return f"why is not shown, as it may quote what the placeholders stand for in {', '.join(quoted)}."
    return text and without_secrets(text, config)


def _with_java(text: str) -> str:
    """Adds Java's name to the first name of librdkafka's in `text` that differs from it."""
    name = next((name for name in _JAVA if name in text), None)
    return text.replace(name, f"{name} ({_JAVA[name]})", 1) if name else text


def without_secrets(text: str, config: Mapping[str, Any]) -> str:
    """Returns `text` without the values of the secrets in `config`, and of any text of a login."""
    free = (
        str(value)
        for name, value in config.items()
        if is_of_login(name) and name not in FILES and librdkafka.describe(name).kind == "text"
    )
    return without(without(text, credentials_of(config)), forms_of(*free))
