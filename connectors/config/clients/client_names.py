"""Settings of Kafka clients by name: those that go on to librdkafka, and those that are refused, with the reason.

Which values a setting takes is not said here: librdkafka is asked (`connectors.config.clients.librdkafka`).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from connectors.config.clients.librdkafka import ClientKind

_ANY_CLIENTS: Final = """
    client.id message.max.bytes message.copy.max.bytes receive.message.max.bytes
    metadata.recovery.rebootstrap.trigger.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse topic.metadata.propagation.max.ms debug
    socket.timeout.ms socket.send.buffer.bytes socket.receive.buffer.bytes socket.keepalive.enable
    socket.nagle.disable socket.max.fails broker.address.ttl broker.address.family
    socket.connection.setup.timeout.ms connections.max.idle.ms reconnect.backoff.ms reconnect.backoff.max.ms
    log_level log.thread.name log.connection.close security.protocol ssl.cipher.suites ssl.curves.list
    ssl.sigalgs.list ssl.key.location ssl.key.password ssl.key.pem ssl.certificate.location ssl.certificate.pem
    ssl.ca.location https.ca.location https.ca.pem ssl.ca.pem ssl.ca.certificate.stores ssl.crl.location
    ssl.keystore.location ssl.keystore.password ssl.providers enable.ssl.certificate.verification
    ssl.endpoint.identification.algorithm sasl.mechanism sasl.username sasl.password sasl.oauthbearer.config
    enable.sasl.oauthbearer.unsecure.jwt sasl.oauthbearer.method sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.scope sasl.oauthbearer.extensions
    sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.sub.claim.name sasl.oauthbearer.grant.type
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.metadata.authentication.type client.rack retry.backoff.ms retry.backoff.max.ms
    client.dns.lookup enable.metrics.push
"""
_CONSUMERS: Final = """
    queued.min.messages queued.max.messages.kbytes fetch.wait.max.ms fetch.queue.backoff.ms
    max.partition.fetch.bytes fetch.max.bytes fetch.min.bytes fetch.error.backoff.ms check.crcs
"""
_PRODUCERS: Final = """
    max.in.flight.requests.per.connection transaction.timeout.ms queue.buffering.max.messages
    queue.buffering.max.kbytes linger.ms retries queue.buffering.backpressure.threshold compression.type
    batch.num.messages batch.size request.timeout.ms delivery.timeout.ms compression.level
"""
CLIENT_SETTINGS: Final[dict[str, ClientKind | None]] = {
    **dict.fromkeys(_ANY_CLIENTS.split()),
    **dict.fromkeys(_CONSUMERS.split(), "consumer"),
    **dict.fromkeys(_PRODUCERS.split(), "producer"),
}
"""The names of librdkafka's CONFIGURATION.md that are passed on, and the client that each belongs to; None: any client.

Left out are callbacks, what is deprecated there, and what stands in `REFUSED`.
"""

FILES: Final = frozenset(name for name in CLIENT_SETTINGS if name.endswith((".location", ".file")))
"""Those that name a file, or a folder, that the client reads."""
SYSTEMS: Final = "probe"
"""librdkafka's word for the system's certificates, in place of a file of them."""

ALIASES: Final[dict[str, str]] = {
    "metadata.broker.list": "bootstrap.servers",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "queue.buffering.max.ms": "linger.ms",
    "message.send.max.retries": "retries",
    "compression.codec": "compression.type",
    "message.timeout.ms": "delivery.timeout.ms",
    "request.required.acks": "acks",
}
"""Second names of librdkafka, and the one that keyfold passes on."""

WORDS: Final[dict[str, tuple[str, ...]]] = {
    "broker.address.family": ("any", "v4", "v6"),
    "security.protocol": ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
    "ssl.endpoint.identification.algorithm": ("none", "https"),
    "sasl.oauthbearer.method": ("default", "oidc"),
    "sasl.oauthbearer.grant.type": ("client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
    "sasl.oauthbearer.assertion.algorithm": ("RS256", "ES256"),
    "sasl.oauthbearer.metadata.authentication.type": ("none", "azure_imds"),
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
}
"""What librdkafka takes for settings that have words: its refusals do not list them."""

TRANSACTIONAL: Final[dict[str, range]] = {
    "max.in.flight.requests.per.connection": range(1, 6),
    "retries": range(1, 2**31),
}
"""Narrower ranges than librdkafka's, which only checks them together with transactional.id, as all producers have."""

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


NOT_OVER_REST: Final[dict[str, str]] = {
    "ssl.providers": "OpenSSL runs the code of each file that it names",
    "debug": "librdkafka writes all settings to the worker's log, also what the worker's placeholders stand for",
    "sasl.oauthbearer.token.endpoint.url": "the client sends its secret there, which may be the worker's",
}
"""Names of librdkafka's that a connector made over REST may not set, and why: anyone who may ask REST can make one."""


def reason(name: str) -> str | None:
    """Returns why `name` is refused; None for a name that is not in the list."""
    return next((why for pattern, why in REFUSED.items() if fnmatchcase(name, pattern)), None)
