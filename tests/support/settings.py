"""Every setting that a connector may have, from the declarations: keys, classes of a chain, clients, registries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

from connectors.class_names import ClassNames
from connectors.config.clients.client_names import CLIENT_SETTINGS
from connectors.config.clients.client_translate import JAVA, STORE_TYPES
from connectors.config.connector import ConnectorConfig
from connectors.config.definitions import definitions
from connectors.converters.names import CONVERTERS, HEADER_CONVERTERS
from connectors.options import REQUIRED
from connectors.transforms.names import PREDICATES, TRANSFORMS

LEAST = {"connector.class": "keyfold.CompactedTopic", "name": "c", "topics": "t,t2"}
_VALUES = {
    "spec": "a:int8",
    "field": "a",
    "fields": "a",
    "headers": "h",
    "operation": "copy",
    "target.type": "string",
    "regex": "x(.*)",
    "replacement": "y$1",
    "static.field": "s",
    "schema.registry.url": "http://127.0.0.1:9",
}
"""Values of settings that some class requires; of any other one it is a word."""
_NEEDS: dict[str, dict[str, str]] = {
    "min.compaction.lag.ms": {"max.compaction.lag.ms": "1"},
    "max.compaction.lag.ms": {"min.compaction.lag.ms": "9223372036854775807"},
    "restart.backoff.initial.ms": {"restart.backoff.max.ms": "1"},
    "restart.backoff.max.ms": {"restart.backoff.initial.ms": "9223372036854775807"},
    "compaction.key.identity": {"cleanup.policy": "delete", "output.topic": "none"},
    "errors.deadletterqueue.topic.name": {"errors.tolerance": "all"},
    "topics": {"output.topic": "fixed"},
    "basic.auth.user.info": {"basic.auth.credentials.source": "USER_INFO"},
    "basic.auth.credentials.source": {"basic.auth.user.info": "u:p"},
    "static.value": {"static.field": "s"},
    "schema.registry.ssl.key.password": {"schema.registry.ssl.keystore.location": "/nothing/there"},
}
"""Settings beside which a rule looks at another one."""


def cases() -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the name of each setting, and the settings beside it that a connector with it has."""
    for key in definitions(ConnectorConfig):
        yield key, {**LEAST, **_NEEDS.get(key, {})}
    yield "output.topic.config.retention.ms", LEAST
    for key in ("key.converter", "value.converter", "output.key.converter", "output.value.converter"):
        yield from _of_classes(CONVERTERS, key, {})
    yield from _of_classes(HEADER_CONVERTERS, "header.converter", {})
    yield from _of_steps(TRANSFORMS, "transforms")
    yield from _of_steps(PREDICATES, "predicates")
    kinds: Iterator[Any] = cycle(["consumer", "producer", "admin"])
    for name in sorted({*CLIENT_SETTINGS, *JAVA, *STORE_TYPES, "sasl.jaas.config", "bootstrap.servers"}):
        kind: str = CLIENT_SETTINGS.get(name) or next(kinds)
        yield f"{kind}.override.{name}", LEAST


def _of_classes(names: ClassNames, key: str, more: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    yield key, LEAST
    for one in names.known:
        yield from _of_options(one.load().OPTIONS, key, {**LEAST, **more, key: one.java})


def _of_steps(names: ClassNames, kind: str) -> Iterator[tuple[str, dict[str, str]]]:
    for one in names.known:
        name = f"{one.java}$Value" if one.sided else one.java
        converters = {"key.converter": "keyfold.Json", "value.converter": "keyfold.Json"}
        at = {**LEAST, kind: "a", f"{kind}.a.type": name, **converters}
        yield from ((f"{kind}.a.{own}", at) for own in ("type", "predicate", "negate"))
        yield from _of_options(one.load().OPTIONS, f"{kind}.a", at)


def _of_options(options: Any, prefix: str, at: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    required = {f"{prefix}.{one.name}": _VALUES.get(one.name, "word") for one in options if one.default is REQUIRED}
    for one in options:
        needs = {f"{prefix}.{name}": text for name, text in _NEEDS.get(one.name, {}).items()}
        yield f"{prefix}.{one.name}", {**at, **required, **needs}
