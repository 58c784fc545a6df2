"""One client setting, under Java's or librdkafka's name, as librdkafka's settings.

Most names are the same in both. The tables hold those that are not, and values that need converting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from connectors.config import pem, refused, suggest
from connectors.config.jaas import parse_jaas
from connectors.config.librdkafka import ALIASES, SETTINGS, ClientKind

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
"""Java's names where librdkafka has another one."""

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


def _kib(text: str) -> str:
    return str(-(-int(text) // 1024)) if text.isdecimal() else text


def _minus_one(meaning: str) -> Callable[[str], str]:
    return lambda text: meaning if text == "-1" else text


_CONVERTED: Final[dict[str, Callable[[str], str]]] = {
    "buffer.memory": _kib,
    "send.buffer.bytes": _minus_one("0"),
    "receive.buffer.bytes": _minus_one("0"),
    "connections.max.idle.ms": _minus_one("0"),
    "security.protocol": str.lower,
    "ssl.endpoint.identification.algorithm": str.lower,
    "ssl.truststore.certificates": pem.in_lines,
    "ssl.keystore.certificate.chain": pem.in_lines,
    "ssl.keystore.key": pem.in_lines,
}
_KNOWN: Final = frozenset((*SETTINGS, *ALIASES, *JAVA, *STORE_TYPES, _JAAS, _LOGIN))


def is_known(name: str) -> bool:
    """True for a client setting, be it passed on or refused."""
    return name in _KNOWN or refused.reason(name) is not None


def target(kind: ClientKind, name: str) -> str:
    """Librdkafka's name of the setting `name` for a client of this kind.

    Raises ValueError with the reason for a setting that is refused, unknown, or another client's.
    """
    if name == "request.timeout.ms" and kind != "producer":
        return "socket.timeout.ms"
    found = JAVA.get(name) or ALIASES.get(name, name)
    why = refused.reason(found) or refused.reason(name)
    if why:
        raise ValueError(f"cannot be set: {why}.")
    if found in (*STORE_TYPES, _JAAS, _LOGIN):
        return found
    if found not in SETTINGS:
        raise ValueError(suggest.unknown(name, _KNOWN, f"setting of a {kind} client"))
    if not SETTINGS[found].serves(kind) or (name in _PRODUCERS_IN_JAVA and kind != "producer"):
        owner = "consumer" if SETTINGS[found].client == "C" else "producer"
        raise ValueError(f"is a {owner}'s setting, it does nothing for a client of kind {kind}.")
    return found


def settings(kind: ClientKind, name: str, text: str) -> dict[str, str]:
    """What one setting says to librdkafka; several settings for a JAAS entry. Raises ValueError with the reason."""
    found = target(kind, name)
    if found == _JAAS:
        return parse_jaas(text)
    if found == _LOGIN:
        return _login(text)
    value = _converted(name, found, text)
    _check(found, value)
    return {found: value}


def _converted(name: str, found: str, text: str) -> str:
    value = _CONVERTED.get(name, str)(_SYNONYMS.get((found, text), text))
    return value.lower() if value.lower() in ("true", "false") else value


def _check(found: str, value: str) -> None:
    if found in STORE_TYPES:
        words, export = STORE_TYPES[found]
        return _check_words(value.upper(), words, f" librdkafka reads no other store: {export}.")
    if found == "sasl.mechanism":
        return _check_words(value, _MECHANISMS)
    if found == "ssl.cipher.suites" and "_WITH_" in value:
        raise ValueError("is not allowed: these are Java's names; write OpenSSL's, as ECDHE-RSA-AES256-GCM-SHA384.")
    if not value:
        raise ValueError("is not allowed: it is empty.")
    if not SETTINGS[found].accepts(value):
        raise ValueError(f"is not allowed: allowed is {SETTINGS[found].described()}.")
    return None


def _check_words(value: str, words: tuple[str, ...], instead: str = "") -> None:
    if value not in words:
        raise ValueError(f"is not allowed: allowed is {' or '.join(words)}.{instead}")


def _login(text: str) -> dict[str, str]:
    if not text.endswith(_LOGIN_CLASS):
        raise ValueError(f"is not allowed: no Java classes are run; the only one known is Kafka's {_LOGIN_CLASS}.")
    return {"sasl.oauthbearer.method": "oidc"}


def doubled(kind: ClientKind, names: Iterable[str]) -> Mapping[str, str]:
    """Names that say the same as another of `names`: the name → the one before it. Unknown names are left out."""
    seen: dict[str, str] = {}
    found: dict[str, str] = {}
    for name in names:
        key = _target_or_none(kind, name)
        if key and seen.setdefault(key, name) != name:
            found[name] = seen[key]
    return found


def _target_or_none(kind: ClientKind, name: str) -> str | None:
    try:
        return target(kind, name)
    except ValueError:
        return None
