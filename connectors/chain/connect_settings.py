"""Settings of Connect's classes that ours do not have: those without effect, other names, and refused ones.

Connect ignores every setting that a class does not know, so files have many. A typo has to be found: what is accepted
here is accepted by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from connectors.options import PLUGIN_VERSIONS, Option, not_available
from connectors.registry.settings import USE_ID

PLUGIN_VERSION: Final = "plugin.version"
"""Connect's setting for the version of a class (KIP-891)."""
AS_CONFLUENT: Final = "apicurio.registry.as-confluent"
"""Of Apicurio's converters of 2.x alone: ids have 4 bytes, and are globalId unless USE_ID says otherwise."""
NO_EFFECT: Final[dict[str, tuple[str, ...]]] = {"schemas.enable": ()}
"""Settings that any converter takes, and the only values; none: any. Connect's StringConverter ignores this one."""
NO_EFFECT_WITH_REGISTRY: Final[dict[str, tuple[str, ...]]] = {
    AS_CONFLUENT: ("TRUE",),
    "apicurio.registry.find-latest": ("FALSE",),
    "apicurio.registry.headers.enabled": ("FALSE",),
    "bearer.auth.credentials.source": ("STATIC_TOKEN",),
    "id.compatibility.strict": (),
    "latest.cache.size": (),
    "latest.cache.ttl.sec": (),
    "latest.compatibility.strict": (),
    "max.schemas.per.subject": (),
    "schemas.cache.config": (),
    "schemas.cache.size": (),
    "schema.registry.ssl.keystore.type": ("PEM",),
    "schema.registry.ssl.truststore.type": ("PEM",),
}
"""Those that converters with a registry take: they bound caches and checks of Java's client, or say what is so."""
APICURIO_URL: Final = "apicurio.registry.url"
_URL: Final = "schema.registry.url"
OTHER_NAMES: Final[dict[str, str]] = {
    "schema.registry.basic.auth.user.info": "basic.auth.user.info",
    "apicurio.registry.auto-register": "auto.register.schemas",
    APICURIO_URL: _URL,
}
"""Second names that converters with a registry take; the first name wins if a file has both."""
_TLS: Final = "OpenSSL is used, not Java's security providers"
_PEM: Final = "a truststore is PEM, which has no password; export a Java keystore (keytool -exportcert -rfc)"
_KEY: Final = "a keystore is PEM: the certificate, and its key, whose password is schema.registry.ssl.key.password"
_STATIC: Final = "a token is what bearer.auth.token says (STATIC_TOKEN); none is fetched"
REFUSED: Final[dict[str, str]] = {
    "bearer.auth.*": _STATIC,
    "proxy.*": "a proxy is named by proxy.host and proxy.port",
    "schema.registry.ssl.truststore.*": _PEM,
    "schema.registry.ssl.keystore.*": _KEY,
    "schema.registry.ssl.*": _TLS,
    APICURIO_URL: "its path is not /apis/registry/v2 or v3; write schema.registry.url=http://HOST:8080/apis/ccompat/v7",
    "apicurio.registry.as-confluent": "apicurio.registry.id-handler says how many bytes ids have, 4 or 8",
    "apicurio.registry.find-latest": "only beside apicurio.registry.auto-register=true, which comes first in "
    "Apicurio's class too; what a transform has made is written with its own schema",
    "apicurio.registry.headers.enabled": "ids are written before the data; those that are in headers are read",
    "apicurio.*auth.*": "write basic.auth.credentials.source=USER_INFO and basic.auth.user.info=USER:PASSWORD",
    "apicurio.*": "Apicurio's registry is asked as Confluent's is, by schema.registry.url and what belongs to it",
}
"""Patterns of names that converters with a registry do not take, and why."""
_MODES: Final = "delete.tombstone.handling.mode"
OLDER: Final[dict[str, tuple[str, str]]] = {
    "drop.tombstones": (
        _MODES,
        "rewrite-with-tombstone is drop.tombstones=false beside delete.handling.mode=rewrite",
    ),
    "delete.handling.mode": (_MODES, "drop and rewrite are what they were, and none is tombstone"),
    "add.source.fields": ("add.fields", "each field as source.FIELD"),
    "operation.header": ("add.headers", "true is add.headers=op"),
    "blacklist": ("exclude", "its fields are left out"),
    "whitelist": ("include", "its fields are kept"),
}
"""Names that Debezium's and Kafka's classes had before: the setting in their place, and how it says the same."""
_NATIVE: Final = re.compile(r"/apis/registry/v[23]/?$")


def settled(options: Iterable[Option], texts: Mapping[str, str], *, converts: bool) -> dict[str, str]:
    """Returns the settings `texts` of a class with `options`, by the class's names, without those of no effect.

    `texts` are resolved; `converts`: it is a converter. A name that is neither is left as it is.
    """
    known = {option.name for option in options}
    registers = texts.get("apicurio.registry.auto-register", "").strip().lower() == "true"
    kept = {
        name: text
        for name, text in texts.items()
        if name in known or not (converts and _is_idle(name, text, known, registers=registers))
    }
    if _URL in known:
        for name, ours in OTHER_NAMES.items():
            text = kept.get(name)
            if text is not None and name not in known and (own := _confluents(name, text)) is not None:
                del kept[name]
                kept.setdefault(ours, own)
        is_version_2 = AS_CONFLUENT in texts and AS_CONFLUENT not in kept and "/apis/ccompat/" in kept.get(_URL, "")
        if is_version_2 and USE_ID in known:
            kept.setdefault(USE_ID, "globalId")
    return kept


def name_in_file(name: str, texts: Mapping[str, str]) -> str:
    """Returns the name under which `texts`, a file's, have the setting that its class knows as `name`."""
    if name in texts:
        return name
    return next((other for other, ours in OTHER_NAMES.items() if ours == name and other in texts), name)


def reason(name: str, options: Iterable[Option]) -> str | None:
    """Returns the sentence for a name that a class with `options` does not have; None: nothing is known of it."""
    if name == PLUGIN_VERSION:
        return not_available(PLUGIN_VERSIONS)
    known = {option.name for option in options}
    now, how = OLDER.get(name, ("", ""))
    if now in known:
        return f"is an older name: write {now} ({how})."
    if _URL not in known:
        return None
    why = next((why for pattern, why in REFUSED.items() if fnmatchcase(name, pattern)), None)
    return why and f"cannot be set: {why}."


def _is_idle(name: str, text: str, known: Iterable[str], *, registers: bool) -> bool:
    """Returns whether a setting has no effect; `registers`: new schemas are registered, in Apicurio's words."""
    if name == "apicurio.registry.find-latest" and registers:
        return _URL in known
    idle = NO_EFFECT | NO_EFFECT_WITH_REGISTRY if _URL in known else NO_EFFECT
    values = idle.get(name)
    return values is not None and (not values or text.strip().upper() in values)


def _confluents(name: str, text: str) -> str | None:
    """Returns the text of a second name as the first has it; None if there is none: Apicurio's other addresses."""
    if name != APICURIO_URL:
        return text
    urls = [_NATIVE.sub("/apis/ccompat/v7", address.strip()) for address in text.split(",")]
    return ",".join(urls) if all("/apis/ccompat/" in url for url in urls) else None
