"""Translates one client setting, under Java's or librdkafka's name, to librdkafka's settings.

Most names are the same in both. The tables hold those that are not, and values that need converting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from compactor.digits import whole
from connectors import jaas
from connectors.config import errors
from connectors.config.clients import client_names, librdkafka
from connectors.config.clients.client_names import ALIASES, CLIENT_SETTINGS, TRANSACTIONAL, WORDS
from connectors.config.clients.librdkafka import ClientKind
from connectors.config.errors import Fault, RefusedValueError, refused
from connectors.jaas import JaasError
from connectors.placeholders import has_placeholder

EXPORT_TRUST: Final = (
    "export its certificates (keytool -exportcert -rfc -keystore STORE -alias ALIAS -file ca.pem), name that file in "
    "ssl.truststore.location, set ssl.truststore.type=PEM and leave the password out"
)
EXPORT_KEYS: Final = (
    "convert it (keytool -importkeystore -srckeystore STORE -destkeystore keys.p12 -deststoretype PKCS12), name that "
    "file in ssl.keystore.location and set ssl.keystore.type=PKCS12"
)

JAVA: Final[dict[str, str]] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "buffer.memory": "queue.buffering.max.kbytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.truststore.location": "ssl.ca.location",
    "sasl.oauthbearer.assertion.template.file": "sasl.oauthbearer.assertion.jwt.template.file",
}
"""Java's names for which librdkafka has another."""

STORE_TYPES: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "ssl.truststore.type": (("PEM",), EXPORT_TRUST),
    "ssl.keystore.type": (("PKCS12", "PEM"), EXPORT_KEYS),
}
"""What librdkafka reads of Java's stores, and how another one is made such."""
_PRODUCERS_IN_JAVA: Final = frozenset(
    ["max.request.size", "buffer.memory", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level"]
)
_JAAS: Final = "sasl.jaas.config"
_LOGIN: Final = "sasl.login.callback.handler.class"
_LOGIN_CLASS: Final = "OAuthBearerLoginCallbackHandler"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_SYNONYMS: Final = {("ssl.endpoint.identification.algorithm", ""): "none"}
_BLOCK: Final = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)([A-Za-z0-9+/=\s]+)(-----END [A-Z0-9 ]+-----)")
# Characters of a line of PEM (RFC 7468); Java takes a key or certificate in one line, OpenSSL does not.
_LINE: Final = 64


def in_lines(text: str) -> str:
    """Breaks each key and certificate in `text` into lines; what is no PEM stays as it is."""
    return _BLOCK.sub(_one, text)


def _one(block: re.Match[str]) -> str:
    begin, body, end = block.groups()
    data = "".join(body.split())
    lines = [data[at : at + _LINE] for at in range(0, len(data), _LINE)]
    return "\n".join(["", begin, *lines, end, ""])


def _kib(text: str) -> str:
    size = whole(text)
    return text if size is None else str(-(-size // 1024))


def _minus_one(meaning: str) -> Callable[[str], str]:
    return lambda text: meaning if text == "-1" else text


_CONVERTED: Final[dict[str, Callable[[str], str]]] = {
    "buffer.memory": _kib,
    "send.buffer.bytes": _minus_one("0"),
    "receive.buffer.bytes": _minus_one("0"),
    "connections.max.idle.ms": _minus_one("0"),
    "security.protocol": str.lower,
    "ssl.endpoint.identification.algorithm": str.lower,
    "ssl.truststore.certificates": in_lines,
    "ssl.keystore.certificate.chain": in_lines,
    "ssl.keystore.key": in_lines,
}
_KNOWN: Final = frozenset((*CLIENT_SETTINGS, *ALIASES, *JAVA, *STORE_TYPES, _JAAS, _LOGIN))


def is_known(name: str) -> bool:
    """Returns whether some Kafka client has a setting `name`, be it passed on or refused."""
    return name in _KNOWN or client_names.reason(name) is not None


def target(kind: ClientKind, name: str) -> str:
    """Returns librdkafka's name of the setting `name` for a client of this kind.

    Raises ValueError with the reason for a setting that is refused, unknown, or another client's.
    """
    if name == "request.timeout.ms" and kind != "producer":
        return "socket.timeout.ms"
    native = JAVA.get(name) or ALIASES.get(name, name)
    why = client_names.reason(native) or client_names.reason(name)
    if why:
        raise ValueError(f"cannot be set: {why}.")
    if native in (*STORE_TYPES, _JAAS, _LOGIN):
        return native
    if native not in CLIENT_SETTINGS:
        raise ValueError(errors.unknown(name, _KNOWN, f"setting of a {kind} client"))
    owner = "producer" if name in _PRODUCERS_IN_JAVA else CLIENT_SETTINGS[native]
    if owner not in (None, kind):
        raise ValueError(f"is a {owner}'s setting, it does nothing for a client of kind {kind}.")
    return native


def to_librdkafka(kind: ClientKind, name: str, text: str) -> dict[str, str]:
    """Translates one setting to librdkafka's; several for a JAAS entry. Raises ValueError with the reason."""
    native = target(kind, name)
    if native == _JAAS:
        return parse_jaas(text)
    if native == _LOGIN:
        return _login(text)
    value = _converted(name, native, text)
    _check(native, value)
    return {native: value}


def _converted(name: str, native: str, text: str) -> str:
    value = _CONVERTED.get(name, str)(_SYNONYMS.get((native, text), text))
    return value.lower() if value.lower() in ("true", "false") else value


def _check(native: str, value: str) -> None:
    if native in STORE_TYPES:
        words, export = STORE_TYPES[native]
        return _check_words(value.upper(), words, f" librdkafka reads no other store: {export}.")
    if native == "sasl.mechanism":
        return _check_words(value, _MECHANISMS)
    if native == "ssl.cipher.suites" and "_WITH_" in value:
        raise RefusedValueError("these are Java's names; write OpenSSL's, as ECDHE-RSA-AES256-GCM-SHA384.")
    if not value:
        raise RefusedValueError("it is empty.")
    return _ask(native, value)


def _ask(native: str, value: str) -> None:
    """Raises ValueError for a value that librdkafka does not take; of numbers it would take "5x" too, and mean 5."""
    asked = librdkafka.describe(native)
    if asked.kind == "number":
        _check_number(value, TRANSACTIONAL.get(native, range(asked.least, asked.most + 1)), fractions=asked.fractions)
    elif asked.kind == "flag" and value not in ("true", "false"):
        raise RefusedValueError("allowed is true, false.")
    elif asked.kind == "words" and not librdkafka.takes(native, value):
        allowed = f"allowed is {', '.join(WORDS[native])}" if native in WORDS else "librdkafka does not know it"
        raise RefusedValueError(f"{allowed}.")


def _check_number(value: str, bounds: range, *, fractions: bool) -> None:
    form = r"-?\d{1,15}(\.\d{1,9})?" if fractions else r"-?\d{1,15}"
    if not re.fullmatch(form, value, re.ASCII) or not bounds[0] <= float(value) <= bounds[-1]:
        whole = "" if fractions else "whole "
        raise RefusedValueError(f"allowed is a {whole}number from {bounds[0]} to {bounds[-1]}.")


def _check_words(value: str, words: tuple[str, ...], instead: str = "") -> None:
    if value not in words:
        raise RefusedValueError(f"allowed is {' or '.join(words)}.{instead}")


def _login(text: str) -> dict[str, str]:
    if not text.endswith(_LOGIN_CLASS):
        raise RefusedValueError(f"no Java classes are run; the only one known is Kafka's {_LOGIN_CLASS}.")
    return {"sasl.oauthbearer.method": "oidc"}


def doubled(kind: ClientKind, names: Iterable[str]) -> Mapping[str, str]:
    """Finds names that mean the same as one before them: the name → the one before. Unknown names are left out."""
    seen: dict[str, str] = {}
    repeats: dict[str, str] = {}
    for name in names:
        key = target_or_none(kind, name)
        if key and seen.setdefault(key, name) != name:
            repeats[name] = seen[key]
    return repeats


def target_or_none(kind: ClientKind, name: str) -> str | None:
    """Returns `target`, None for a name that it refuses."""
    try:
        return target(kind, name)
    except ValueError:
        return None


def name_faults(kind: ClientKind, settings: Mapping[str, str]) -> tuple[Fault, ...]:
    """Checks one family of settings by itself: names, values without placeholders, names given twice."""
    twice = doubled(kind, settings)
    repeated = (Fault(name, f"says the same as {other}; remove one.") for name, other in twice.items())
    single = (fault for name, text in settings.items() if name not in twice for fault in _faults(kind, name, text))
    return (*repeated, *single)


def _faults(kind: ClientKind, name: str, text: str) -> Iterator[Fault]:
    try:
        target(kind, name)
    except ValueError as error:
        yield Fault(name, str(error))
        return
    if not has_placeholder(text):
        try:
            to_librdkafka(kind, name, text)
        except RefusedValueError as error:
            yield refused(name, text, str(error))


_PASSWORDS: Final = {"username": "sasl.username", "password": "sasl.password"}
_MODULES: Final[dict[str, dict[str, str]]] = {
    "PlainLoginModule": _PASSWORDS,
    "ScramLoginModule": _PASSWORDS,
    "OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
}
_EXTENSION: Final = "extension_"


def parse_jaas(text: str) -> dict[str, str]:
    """Reads the settings of one JAAS entry: `…PlainLoginModule required username="u" password="p";`.

    Raises ValueError, which never holds the entry's values, for another module, an unknown option or bad form.
    """
    try:
        entry = jaas.read_entry(text)
    except JaasError as error:
        raise RefusedValueError(str(error)) from None
    names = _MODULES.get(entry.module.rpartition(".")[2])
    if names is None:
        raise RefusedValueError(f"the login modules known are {', '.join(_MODULES)}.")
    return _settings(names, entry.options)


def _settings(names: dict[str, str], options: dict[str, str]) -> dict[str, str]:
    extensions = [f"{n.removeprefix(_EXTENSION)}={v}" for n, v in options.items() if n.startswith(_EXTENSION)]
    strange = [name for name in options if name not in names and not name.startswith(_EXTENSION)]
    if strange:
        raise RefusedValueError(f"librdkafka has no equal for options besides {', '.join(names)}.")
    translated = {names[name]: value for name, value in options.items() if name in names}
    return translated | ({"sasl.oauthbearer.extensions": ",".join(extensions)} if extensions else {})
