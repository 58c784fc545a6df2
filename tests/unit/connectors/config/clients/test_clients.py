"""Settings of Kafka clients: Java's names and librdkafka's, TLS, SASL, and what nobody may set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest

from connectors.config.clients import librdkafka
from connectors.config.clients.client_check import client_faults, without_secrets
from connectors.config.clients.client_names import ALIASES, CLIENT_SETTINGS, WORDS
from connectors.config.clients.client_translate import JAVA, name_faults, parse_jaas
from connectors.config.clients.librdkafka import ClientKind
from connectors.config.clients.merged import client_config
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import RefusedValueError
from connectors.config.worker import WorkerConfig
from connectors.errors import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "


def worker(**settings: Any) -> WorkerConfig:
    return WorkerConfig(**{"bootstrap.servers": "127.0.0.1:9092"} | dotted(settings))


def connector(**settings: Any) -> ConnectorConfig:
    least = {"name": "c", "connector.class": "CompactedTopic", "topics": "t"}
    return ConnectorConfig.model_validate(least | dotted(settings))


def dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in settings.items()}


def config(kind: ClientKind, settings: dict[str, str]) -> dict[str, Any]:
    """What a client gets for these settings of the worker file, without bootstrap.servers."""
    found = client_config(kind, worker(**{f"{kind}.{name}": text for name, text in settings.items()}), None, {})
    assert found.pop("bootstrap.servers") == "127.0.0.1:9092"
    return found


@pytest.mark.parametrize(
    ("kind", "given", "passed_on"),
    [
        ("consumer", {"fetch.min.bytes": "9"}, {"fetch.min.bytes": "9"}),
        ("consumer", {"fetch.max.wait.ms": "9"}, {"fetch.wait.max.ms": "9"}),
        ("consumer", {"fetch.wait.max.ms": "9"}, {"fetch.wait.max.ms": "9"}),
        ("consumer", {"fetch.message.max.bytes": "9"}, {"max.partition.fetch.bytes": "9"}),
        ("consumer", {"request.timeout.ms": "900"}, {"socket.timeout.ms": "900"}),
        ("admin", {"request.timeout.ms": "900"}, {"socket.timeout.ms": "900"}),
        ("producer", {"request.timeout.ms": "900"}, {"request.timeout.ms": "900"}),
        ("producer", {"buffer.memory": "1025"}, {"queue.buffering.max.kbytes": "2"}),
        ("producer", {"max.request.size": "2000"}, {"message.max.bytes": "2000"}),
        ("producer", {"linger.ms": "1.5"}, {"linger.ms": "1.5"}),
        ("producer", {"queue.buffering.max.ms": "5"}, {"linger.ms": "5"}),
        ("producer", {"compression.type": "zstd", "compression.zstd.level": "3"},
         {"compression.type": "zstd", "compression.level": "3"}),
        ("admin", {"metadata.max.age.ms": "5000"}, {"topic.metadata.refresh.interval.ms": "5000"}),
        ("admin", {"send.buffer.bytes": "-1"}, {"socket.send.buffer.bytes": "0"}),
        ("admin", {"connections.max.idle.ms": "-1"}, {"connections.max.idle.ms": "0"}),
        ("admin", {"security.protocol": "SSL"}, {"security.protocol": "ssl"}),
        ("admin", {"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ("admin", {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca"}, {"ssl.ca.location": "/ca"}),
        ("admin", {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "x"}, {"ssl.ca.pem": "x"}),
        ("admin", {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k", "ssl.key.password": "p"},
         {"ssl.certificate.location": "/k", "ssl.key.location": "/k", "ssl.key.password": "p"}),
        ("admin", {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k", "ssl.keystore.password": "p"},
         {"ssl.keystore.location": "/k", "ssl.keystore.password": "p"}),
        ("admin", {"ssl.keystore.type": "PEM", "ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"},
         {"ssl.key.pem": "k", "ssl.certificate.pem": "c"}),
        ("admin", {"sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN + 'username="u" password="p;\\"q";'},
         {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": 'p;"q'}),
        ("admin", {"sasl.mechanisms": "PLAIN"}, {"sasl.mechanism": "PLAIN"}),
        ("admin", {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://x/t"},
         {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://x/t",
          "sasl.oauthbearer.method": "oidc"}),
        ("admin", {"sasl.login.callback.handler.class": "org.apache.kafka.x.OAuthBearerLoginCallbackHandler"},
         {"sasl.oauthbearer.method": "oidc"}),
    ],
)  # fmt: skip
def test_names_and_values_become_librdkafkas(
    kind: ClientKind, given: dict[str, str], passed_on: dict[str, str]
) -> None:
    """A setting under Java's or librdkafka's name reaches librdkafka under its own, with the value converted."""
    assert config(kind, given) == passed_on


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("consumer", {"group.id": "g"}, "group.id: cannot be set: the group is connect-<name>"),
        ("consumer", {"isolation.level": "read_uncommitted"}, "cannot be set"),
        ("consumer", {"enable.auto.commit": "true"}, "cannot be set"),
        ("consumer", {"auto.offset.reset": "latest"}, "cannot be set"),
        ("consumer", {"key.deserializer": "x"}, "cannot be set"),
        ("consumer", {"partition.assignment.strategy": "x"}, "cannot be set"),
        ("consumer", {"interceptor.classes": "x"}, "cannot be set"),
        ("producer", {"transactional.id": "x"}, "cannot be set"),
        ("producer", {"acks": "1"}, "cannot be set"),
        ("producer", {"request.required.acks": "1"}, "cannot be set"),
        ("producer", {"enable.idempotence": "false"}, "cannot be set"),
        ("producer", {"max.block.ms": "1"}, "librdkafka has no equal"),
        ("admin", {"metadata.broker.list": "x:1"}, "all clients talk to the one cluster"),
        ("admin", {"sasl.kerberos.service.name": "x"}, "GSSAPI"),
        ("consumer", {"fetch.mn.bytes": "1"}, 'did you mean "fetch.min.bytes"?'),
        ("consumer", {"linger.ms": "1"}, "is a producer's setting"),
        ("producer", {"fetch.min.bytes": "1"}, "is a consumer's setting"),
        ("consumer", {"max.request.size": "2000"}, "is a producer's setting"),
        ("producer", {"linger.ms": "soon"}, '"soon" is not allowed: allowed is a number from 0 to 900000'),
        ("producer", {"max.in.flight": "6"}, "allowed is a whole number from 1 to 5"),
        ("producer", {"retries": "0"}, "allowed is a whole number from 1 to"),
        ("producer", {"compression.type": "brotli"}, "allowed is none, gzip, snappy, lz4, zstd"),
        ("admin", {"security.protocol": "TLS"}, "allowed is plaintext, ssl"),
        ("admin", {"sasl.mechanism": "GSSAPI"}, "allowed is PLAIN or SCRAM-SHA-256"),
        ("admin", {"ssl.truststore.type": "JKS"}, "keytool -exportcert -rfc"),
        ("admin", {"ssl.truststore.type": "PKCS12"}, "set ssl.truststore.type=PEM"),
        ("admin", {"ssl.truststore.password": "p"}, "export a Java keystore"),
        ("admin", {"ssl.keystore.type": "JKS"}, "keytool -importkeystore"),
        ("admin", {"ssl.cipher.suites": "TLS_RSA_WITH_AES"}, "write OpenSSL's"),
        ("admin", {"sasl.jaas.config": "nonsense"}, '"[hidden]" is not allowed: it must have the form'),
        ("admin", {"client.id": ""}, "it is empty"),
        ("admin", {"debug": "nothing"}, '"nothing" is not allowed: librdkafka does not know it.'),
        ("consumer", {"fetch.min.bytes": "5x"}, '"5x" is not allowed: allowed is a whole number from 0 to 2147483647'),
        ("consumer", {"check.crcs": "yes"}, '"yes" is not allowed: allowed is true, false.'),
    ],
)  # fmt: skip
def test_what_may_not_be_set_is_refused_by_name(kind: ClientKind, given: dict[str, str], said: str) -> None:
    """Keyfold's own settings, another client's, and unknown ones are refused, with the reason or the nearest name."""
    assert said in "\n".join(str(fault) for fault in name_faults(kind, given))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ssl.truststore.location": "/t.jks"}, "admin.ssl.truststore.location: needs ssl.truststore.type=PEM"),
        ({"ssl.keystore.location": "/k.jks"}, "admin.ssl.keystore.location: needs ssl.keystore.type"),
        ({"security.protocol": "SASL_SSL"}, "admin.security.protocol: needs sasl.mechanism"),
        ({"sasl.password": "${env:KF_NOT_THERE}"}, "admin.sasl.password: ${env:KF_NOT_THERE} cannot be resolved"),
    ],
)
def test_settings_that_need_others(given: dict[str, str], said: str) -> None:
    """What only makes sense together is refused under the key that asks for more."""
    with pytest.raises(ConfigError, match="worker: ") as caught:
        config("admin", given)
    assert said in caught.value.message


def test_who_wins() -> None:
    """Keyfold's own, then the connector's override, then the worker's, then the default; whatever name each uses."""
    common = worker(consumer__fetch__min__bytes=1, consumer__fetch__max__wait__ms=1, consumer__check__crcs="true")
    own = connector(consumer__override__fetch__wait__max__ms=2, consumer__override__fetch__min__bytes=2)
    found = client_config(
        "consumer", common, own, {"fetch.min.bytes": 3, "group.id": "g"}, {"check.crcs": False, "client.id": "k"}
    )
    assert found == {
        "bootstrap.servers": "127.0.0.1:9092", "fetch.min.bytes": 3, "fetch.wait.max.ms": "2", "check.crcs": "true",
        "group.id": "g", "client.id": "k",
    }  # fmt: skip


def test_one_setting_under_two_names_is_refused() -> None:
    """Two names for one setting in the same file are a fault, as it is not said which counts."""
    (fault,) = name_faults("consumer", {"fetch.max.wait.ms": "1", "fetch.wait.max.ms": "2"})
    assert str(fault) == "fetch.wait.max.ms: says the same as fetch.max.wait.ms; remove one."


def test_secrets_are_resolved_for_the_client_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gets what a placeholder stands for; the configuration keeps the placeholder."""
    monkeypatch.setenv("KF_PASSWORD", "open-sesame")
    common = worker(admin__sasl__password="${env:KF_PASSWORD}")
    assert client_config("admin", common, None, {})["sasl.password"] == "open-sesame"
    assert common.given["admin.sasl.password"] == "${env:KF_PASSWORD}"
    assert "open-sesame" not in repr(common)


def test_a_resolved_secret_that_is_wrong_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error about a resolved value shows the placeholder, be the value a secret by name or not."""
    monkeypatch.setenv("KF_SECRET", "open-sesame")
    common = worker(admin__sasl__jaas__config="${env:KF_SECRET}", admin__socket__timeout__ms="${env:KF_SECRET}")
    with pytest.raises(ConfigError) as caught:
        client_config("admin", common, None, {})
    assert "open-sesame" not in str(caught.value)
    assert 'admin.socket.timeout.ms: "${env:KF_SECRET}" is not allowed' in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "settings"),
    [
        (PLAIN + "username='u' password=p;", {"sasl.username": "u", "sasl.password": "p"}),
        ('x.ScramLoginModule\n required\n username="a"\n password="";', {"sasl.username": "a", "sasl.password": ""}),
        (
            'x.OAuthBearerLoginModule required clientId="i" clientSecret="s" scope="a" extension_org="o";',
            {
                "sasl.oauthbearer.client.id": "i", "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "a", "sasl.oauthbearer.extensions": "org=o",
            },
        ),
    ],
)  # fmt: skip
def test_jaas(entry: str, settings: dict[str, str]) -> None:
    """A JAAS entry of Kafka's login modules becomes librdkafka's settings."""
    assert parse_jaas(entry) == settings


@pytest.mark.parametrize(
    "entry",
    [
        "x",
        "com.sun.Krb5LoginModule required;",
        PLAIN + 'username="u" tokenauth="s3cret";',
        PLAIN + "username u s3cret;",
    ],
)
def test_a_jaas_entry_that_is_not_understood_is_refused_unseen(entry: str) -> None:
    """An unknown module, option or form is refused without showing anything of the entry."""
    with pytest.raises(RefusedValueError) as caught:
        parse_jaas(entry)
    assert "s3cret" not in str(caught.value)


@contextmanager
def suppress_all_but(words: str) -> Iterator[None]:
    """Lets librdkafka refuse a value, but not with `words`."""
    try:
        yield
    except confluent_kafka.KafkaException as error:
        if words in str(error):
            raise


@pytest.mark.parametrize("name", sorted({*CLIENT_SETTINGS, *ALIASES, *JAVA.values()}))
def test_every_name_that_is_passed_on_is_librdkafkas(name: str) -> None:
    """The installed librdkafka knows every name of the tables."""
    with suppress_all_but("No such configuration property"):
        confluent_kafka.Producer({name: "1"}, logger=_quiet())


@pytest.mark.parametrize("name", WORDS)
def test_the_words_that_a_refusal_lists_are_librdkafkas(name: str) -> None:
    """The installed librdkafka takes each of them, and not another one."""
    assert librdkafka.describe(name).kind == "words"
    assert [word for word in WORDS[name] if not librdkafka.takes(name, word)] == []
    assert not librdkafka.takes(name, "another")


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("fetch.min.bytes", librdkafka.PropertyDescription("number", 0, 2147483647)),
        ("linger.ms", librdkafka.PropertyDescription("number", 0, 900000, fractions=True)),
        ("check.crcs", librdkafka.PropertyDescription("flag")),
        ("debug", librdkafka.PropertyDescription("words")),
        ("client.id", librdkafka.PropertyDescription("text")),
        ("fetch.mn.bytes", librdkafka.PropertyDescription("unknown")),
    ],
)
def test_librdkafka_says_what_a_setting_takes(name: str, setting: librdkafka.PropertyDescription) -> None:
    """Kind and range come from the library that is installed."""
    assert librdkafka.describe(name) == setting


@pytest.mark.parametrize("name", CLIENT_SETTINGS)
def test_every_setting_that_is_passed_on_can_be_asked_about(name: str) -> None:
    """Numbers have a range, and a value at its ends is taken, one beyond it refused."""
    asked = librdkafka.describe(name)
    assert asked.kind != "unknown"
    if asked.kind == "number":
        assert librdkafka.takes(name, str(asked.least))
        assert librdkafka.takes(name, str(asked.most))
        assert not librdkafka.takes(name, str(asked.least - 1))


def _quiet() -> Any:
    import logging

    logger = logging.getLogger("test-config-clients")
    logger.disabled = True
    return logger


def test_librdkafka_is_asked_without_a_broker() -> None:
    """What only librdkafka finds (a file of certificates that is not there) is a fault, before anything connects."""
    common = worker(
        admin__security__protocol="SSL",
        admin__ssl__ca__location="/nowhere/ca.pem",
    )
    found = {fault.key: fault.text for fault in client_faults(common, None)}
    assert "ssl.ca.location (ssl.truststore.location) names nothing that can be read" in found["admin"]
    assert client_faults(worker(), connector()) == ()


def test_librdkafkas_own_words_show_no_secret() -> None:
    """A text of librdkafka's that holds a secret is shown without it."""
    said = without_secrets('Invalid value "open-sesame"', {"sasl.password": "open-sesame", "client.id": "Invalid"})
    assert said == 'Invalid value "[hidden]"'
    common = worker(admin__security__protocol="SSL", admin__ssl__key__pem="open-sesame")
    (fault,) = client_faults(common, None)
    assert "open-sesame" not in fault.text
