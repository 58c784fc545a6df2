"""librdkafka's settings that keyfold passes on: the client they belong to and their range.

From librdkafka's CONFIGURATION.md, without callbacks, deprecated settings, and what `refused` lists. Two ranges are
narrower, because the producers are transactional: in-flight requests (1 to 5) and retries (1 or more).
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

ClientKind = Literal["consumer", "producer", "admin"]


class Setting(msgspec.Struct, frozen=True):
    """`client`: C(onsumer), P(roducer) or * (any). `allowed`: a range `1..5`, `~1..5` with fractions, words, or ""."""

    client: str
    allowed: str

    def serves(self, kind: ClientKind) -> bool:
        """True where a client of this kind has the setting (an admin client has those of any client)."""
        return self.client == "*" or self.client == kind[0].upper()

    def described(self) -> str:
        """What is allowed, in words."""
        low, dots, high = self.allowed.lstrip("~").partition("..")
        if dots:
            return f"a {'' if self.allowed[0] == '~' else 'whole '}number from {low} to {high}"
        return self.allowed.replace(",", ", ")

    def accepts(self, text: str) -> bool:
        """True where `text` is allowed."""
        low, dots, high = self.allowed.lstrip("~").partition("..")
        if dots:
            form = r"-?\d{1,15}(\.\d{1,9})?" if self.allowed[0] == "~" else r"-?\d{1,15}"
            return bool(re.fullmatch(form, text, re.ASCII)) and float(low) <= float(text) <= float(high)
        return not self.allowed or text in self.allowed.split(",")


_TABLE: Final = """
    client.id *
    message.max.bytes * 1000..1000000000
    message.copy.max.bytes * 0..1000000000
    receive.message.max.bytes * 1000..2147483647
    max.in.flight.requests.per.connection P 1..5
    metadata.recovery.strategy * none,rebootstrap
    metadata.recovery.rebootstrap.trigger.ms * 0..2147483647
    topic.metadata.refresh.interval.ms * -1..3600000
    topic.metadata.refresh.fast.interval.ms * 1..60000
    topic.metadata.refresh.sparse * true,false
    topic.metadata.propagation.max.ms * 0..3600000
    debug *
    socket.timeout.ms * 10..300000
    socket.send.buffer.bytes * 0..100000000
    socket.receive.buffer.bytes * 0..100000000
    socket.keepalive.enable * true,false
    socket.nagle.disable * true,false
    socket.max.fails * 0..1000000
    broker.address.ttl * 0..86400000
    broker.address.family * any,v4,v6
    socket.connection.setup.timeout.ms * 1000..2147483647
    connections.max.idle.ms * 0..2147483647
    reconnect.backoff.ms * 0..3600000
    reconnect.backoff.max.ms * 0..3600000
    log_level * 0..7
    log.thread.name * true,false
    log.connection.close * true,false
    security.protocol * plaintext,ssl,sasl_plaintext,sasl_ssl
    ssl.cipher.suites *
    ssl.curves.list *
    ssl.sigalgs.list *
    ssl.key.location *
    ssl.key.password *
    ssl.key.pem *
    ssl.certificate.location *
    ssl.certificate.pem *
    ssl.ca.location *
    https.ca.location *
    https.ca.pem *
    ssl.ca.pem *
    ssl.ca.certificate.stores *
    ssl.crl.location *
    ssl.keystore.location *
    ssl.keystore.password *
    ssl.providers *
    enable.ssl.certificate.verification * true,false
    ssl.endpoint.identification.algorithm * none,https
    sasl.mechanism *
    sasl.username *
    sasl.password *
    sasl.oauthbearer.config *
    enable.sasl.oauthbearer.unsecure.jwt * true,false
    sasl.oauthbearer.method * default,oidc
    sasl.oauthbearer.client.id *
    sasl.oauthbearer.client.secret *
    sasl.oauthbearer.scope *
    sasl.oauthbearer.extensions *
    sasl.oauthbearer.token.endpoint.url *
    sasl.oauthbearer.sub.claim.name *
    sasl.oauthbearer.grant.type * client_credentials,urn:ietf:params:oauth:grant-type:jwt-bearer
    sasl.oauthbearer.assertion.algorithm * RS256,ES256
    sasl.oauthbearer.assertion.private.key.file *
    sasl.oauthbearer.assertion.private.key.passphrase *
    sasl.oauthbearer.assertion.private.key.pem *
    sasl.oauthbearer.assertion.file *
    sasl.oauthbearer.assertion.claim.aud *
    sasl.oauthbearer.assertion.claim.exp.seconds * 1..2147483647
    sasl.oauthbearer.assertion.claim.iss *
    sasl.oauthbearer.assertion.claim.jti.include * true,false
    sasl.oauthbearer.assertion.claim.nbf.seconds * 0..2147483647
    sasl.oauthbearer.assertion.claim.sub *
    sasl.oauthbearer.assertion.jwt.template.file *
    sasl.oauthbearer.metadata.authentication.type * none,azure_imds,aws_iam
    queued.min.messages C 1..10000000
    queued.max.messages.kbytes C 1..2097151
    fetch.wait.max.ms C 0..300000
    fetch.queue.backoff.ms C 0..300000
    max.partition.fetch.bytes C 1..1000000000
    fetch.max.bytes C 0..2147483135
    fetch.min.bytes C 0..2147483647
    fetch.error.backoff.ms C 0..300000
    check.crcs C true,false
    client.rack *
    transaction.timeout.ms P 1000..2147483647
    queue.buffering.max.messages P 0..2147483647
    queue.buffering.max.kbytes P 1..2147483647
    linger.ms P ~0..900000
    retries P 1..2147483647
    retry.backoff.ms * 1..300000
    retry.backoff.max.ms * 1..300000
    queue.buffering.backpressure.threshold P 1..1000000
    compression.type P none,gzip,snappy,lz4,zstd
    batch.num.messages P 1..1000000
    batch.size P 1..2147483647
    client.dns.lookup * use_all_dns_ips,resolve_canonical_bootstrap_servers_only
    enable.metrics.push * true,false
    request.timeout.ms P 1..900000
    delivery.timeout.ms P 0..2147483647
    compression.level P -1..12
"""

SETTINGS: Final[dict[str, Setting]] = {
    words[0]: Setting(words[1], "".join(words[2:])) for words in map(str.split, _TABLE.strip().splitlines())
}

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
