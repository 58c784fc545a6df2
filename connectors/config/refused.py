"""Client settings that are refused by name, with the reason: those keyfold decides, and those librdkafka lacks."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

_GROUP = "keyfold assigns partitions itself; its consumers are in no group"
_POSITION = "keyfold decides where reading begins and commits positions in its transactions"
_ORDER = "the promises on the output topic rest on keyfold's own value"
_BYTES = "keyfold passes on the bytes of a record as they are"
_KERBEROS = "the librdkafka in use has no GSSAPI; use SCRAM-SHA-512, PLAIN or OAUTHBEARER, or TLS client certificates"
_NO_EQUAL = "librdkafka has no equal for it"
_TLS = f"{_NO_EQUAL}: OpenSSL is used, not Java's security providers"
_TOKENS = f"{_NO_EQUAL}: it refreshes tokens by itself"

REFUSED: Final[dict[str, str]] = {
    "bootstrap.servers": "all clients talk to the one cluster of the worker file's bootstrap.servers",
    "group.id": "the group is connect-<name>",
    "transactional.id": "transactional ids are <name>-<bucket>",
    "isolation.level": "keyfold reads committed records only",
    "enable.auto.commit": _POSITION,
    "auto.commit.interval.ms": _POSITION,
    "auto.offset.reset": f"{_POSITION}; see on.data.loss",
    "enable.auto.offset.store": _POSITION,
    "enable.partition.eof": "a range is finished by the consumer's position, not by events",
    "offset.store.*": _POSITION,
    "acks": "always all",
    "enable.idempotence": "always true",
    "enable.gapless.guarantee": _ORDER,
    "queuing.strategy": _ORDER,
    "delivery.report.only.error": _ORDER,
    "produce.offset.report": _ORDER,
    "transaction.two.phase.commit.enable": _ORDER,
    "partitioner*": "a record goes to the partition of the output that it had in the source",
    "sticky.partitioning.linger.ms": "a record goes to the partition of the output that it had in the source",
    "key.serializer*": _BYTES,
    "value.serializer*": _BYTES,
    "key.deserializer*": _BYTES,
    "value.deserializer*": _BYTES,
    "interceptor.classes": _BYTES,
    "plugin.library.paths": _BYTES,
    "partition.assignment.strategy": _GROUP,
    "group.instance.id": _GROUP,
    "group.protocol": _GROUP,
    "group.protocol.type": _GROUP,
    "group.remote.assignor": _GROUP,
    "session.timeout.ms": _GROUP,
    "heartbeat.interval.ms": _GROUP,
    "max.poll.interval.ms": _GROUP,
    "coordinator.query.interval.ms": _GROUP,
    "max.poll.records": "keyfold bounds batches itself; see max.offsets.per.trigger",
    "consume.callback.max.messages": "keyfold bounds batches itself; see max.offsets.per.trigger",
    "share.*": "keyfold uses no share groups",
    "metadata.recovery.strategy": "after a re-bootstrap librdkafka's transactions may wait without end",
    "allow.auto.create.topics": "keyfold never creates a source topic",
    "exclude.internal.topics": "keyfold never reads internal topics by pattern",
    "topic.blacklist": "use topics or topics.regex",
    "statistics.interval.ms": "keyfold counts itself",
    "metric.reporters": f"{_NO_EQUAL}: it runs no Java classes",
    "metrics.*": _NO_EQUAL,
    "config.providers*": "secrets are ${env:…}, ${file:…} and ${directory:…}",
    "bootstrap.controllers": _NO_EQUAL,
    "default.api.timeout.ms": f"{_NO_EQUAL}; request.timeout.ms bounds each request",
    "max.block.ms": f"{_NO_EQUAL}; delivery.timeout.ms bounds sending",
    "metadata.max.idle.ms": _NO_EQUAL,
    "socket.connection.setup.timeout.max.ms": f"{_NO_EQUAL}; set socket.connection.setup.timeout.ms",
    "security.providers": _TLS,
    "ssl.protocol": _TLS,
    "ssl.enabled.protocols": _TLS,
    "ssl.provider": _TLS,
    "ssl.engine.*": _TLS,
    "ssl.keymanager.algorithm": _TLS,
    "ssl.trustmanager.algorithm": _TLS,
    "ssl.secure.random.implementation": _TLS,
    "ssl.truststore.password": "a truststore must be PEM, which has no password; export a Java keystore "
    "(keytool -exportcert -rfc) and set ssl.truststore.type=PEM",
    "sasl.kerberos.*": _KERBEROS,
    "sasl.client.callback.handler.class": f"{_NO_EQUAL}: it runs no Java classes",
    "sasl.login.class": f"{_NO_EQUAL}: it runs no Java classes",
    "sasl.login.connect.timeout.ms": _TOKENS,
    "sasl.login.read.timeout.ms": _TOKENS,
    "sasl.login.refresh.*": _TOKENS,
    "sasl.login.retry.*": _TOKENS,
    "sasl.oauthbearer.clock.skew.seconds": "it is a broker's setting",
    "sasl.oauthbearer.expected.*": "it is a broker's setting",
    "sasl.oauthbearer.jwks.*": "it is a broker's setting",
    "sasl.oauthbearer.jwt.*": f"{_NO_EQUAL}: it runs no Java classes",
    "sasl.oauthbearer.scope.claim.name": _NO_EQUAL,
    "sasl.oauthbearer.header.urlencode": _NO_EQUAL,
}
"""Patterns of names, and why."""


def reason(name: str) -> str | None:
    """Why `name` is refused; None for a name that is not in the list."""
    return next((why for pattern, why in REFUSED.items() if fnmatchcase(name, pattern)), None)
