"""What a connector made over REST may say to its clients and classes: nothing that runs code or opens any file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from compactor.secret_forms import HIDDEN
from connectors.config.clients import librdkafka
from connectors.config.clients.client_names import CLIENT_SETTINGS, FILES, NOT_OVER_REST
from connectors.config.clients.merged import client_config
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import FaultyConfigError
from connectors.config.files import checked, load_worker
from connectors.config.worker import WorkerConfig
from connectors.known_values import hide_all
from connectors.placeholders import FILES as ALLOWED
from tests.support.cli import worker_file
from tests.support.settings import LEAST, cases

FILE_SETTINGS = [
    (key, at) for key, at in cases() if key.endswith((".location", ".file")) and key != "snapshot.location"
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "allowed").mkdir()
    (tmp_path / "there").write_text("secret\n")
    (tmp_path / "allowed" / "out").symlink_to("../there")
    return tmp_path


@pytest.fixture(params=["not set", "set"])
def worker(folder: Path, request: Any) -> WorkerConfig:
    allowed = {ALLOWED: str(folder / "allowed")} if request.param == "set" else {}
    return load_worker(worker_file(folder, **allowed))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The settings of all clients that are made to check them, of which none is made."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(librdkafka, "describe", lambda _: librdkafka.PropertyDescription("text"))
    monkeypatch.setattr(librdkafka, "refusal", lambda _, config: found.append(config))
    return found


def faults(settings: dict[str, str], worker: WorkerConfig) -> list[str]:
    try:
        checked(settings, worker)
    except FaultyConfigError as error:
        return [str(fault) for fault in error.faults]
    return []


AVRO = {"value.converter": "keyfold.Avro", "value.converter.schema.registry.url": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("settings", "chooses", "chosen"),
    [
        ({}, "connector.class", "keyfold.CompactedTopic"),
        ({}, "key.converter", "keyfold.Json"),
        ({}, "header.converter", "SimpleHeaderConverter"),
        ({"transforms": "a"}, "transforms.a.type", "DropHeaders"),
        ({"predicates": "a"}, "predicates.a.type", "RecordIsTombstone"),
        (AVRO, "value.converter.value.subject.name.strategy", "RecordNameStrategy"),
        ({"snapshot.table": "iceberg"}, "iceberg.catalog.type", "sql"),
    ],
)
def test_no_placeholder_says_which_class_is_taken(
    settings: dict[str, str], chooses: str, chosen: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs is as who asked has written it, and an administrator has read it."""
    monkeypatch.setenv("CHOSEN", chosen)
    worker = load_worker(worker_file(folder, **{"config.providers.env.param.allowlist.pattern": "CHOSEN"}))
    assert [text for text in faults({**LEAST, **settings, chooses: "${env:CHOSEN}"}, worker) if chooses in text]


def test_there_are_settings_of_files() -> None:
    """They are those of clients and of registries."""
    assert len(FILES) > 5
    assert {key.partition(".override.")[2] for key, _ in FILE_SETTINGS} >= FILES
    assert any("schema.registry.ssl.keystore" in key for key, _ in FILE_SETTINGS)


def test_no_file_is_opened_that_the_worker_file_does_not_allow(
    folder: Path, worker: WorkerConfig, asked: list[Any]
) -> None:
    """The answer is the same whether the file is there or not, and also for a link out of the allowed folder."""
    for key, at in FILE_SETTINGS:
        places = ("there", "none", "allowed/../there", "allowed/out")
        said = {tuple(faults({**at, key: str(folder / place)}, worker)) for place in places}
        assert len(said) == 1, key
        assert ALLOWED in said.pop()[0], key
    assert not any(name in FILES for config in asked for name in config)


def test_what_the_worker_file_allows_is_opened(folder: Path) -> None:
    """Then a client, or a registry's, says what is wrong with the file."""
    worker = load_worker(worker_file(folder, **{ALLOWED: str(folder / "allowed")}))
    (folder / "allowed" / "ca.pem").write_text("no certificate")
    registry = "value.converter.schema.registry.ssl.truststore.location"
    client = {**LEAST, "producer.override.security.protocol": "SSL"}
    for key, at in (("producer.override.ssl.ca.location", client), (registry, dict(FILE_SETTINGS)[registry])):
        (said,) = faults({**at, key: str(folder / "allowed" / "ca.pem")}, worker)
        assert ALLOWED not in said
        assert "certificate" in said


def test_the_systems_certificates_need_no_leave(worker: WorkerConfig) -> None:
    """Librdkafka has a word for them; of any other file it would be its name."""
    assert faults({**LEAST, "admin.override.ssl.ca.location": "probe"}, worker) == []
    (said,) = faults({**LEAST, "admin.override.ssl.crl.location": "probe"}, worker)
    assert ALLOWED in said


@pytest.mark.parametrize("name", sorted(NOT_OVER_REST))
@pytest.mark.parametrize("kind", ["consumer", "producer", "admin"])
def test_no_client_runs_code_or_sends_secrets_elsewhere(
    worker: WorkerConfig, asked: list[Any], kind: Any, name: str
) -> None:
    """A file may say so, REST may not: not to a client that checks it, nor to one that is made of what was stored."""
    assert name in CLIENT_SETTINGS
    key, value = f"{kind}.override.{name}", {"debug": "all"}.get(name, "/x/code.so")
    (said,) = faults({**LEAST, key: value}, worker)
    shown = f'"{value}"' if name == "debug" else "the value (not shown)"
    assert said.startswith(f"{key}: {shown} is not allowed: ")
    assert not any(name in config for config in asked)
    stored = ConnectorConfig.model_validate({**LEAST, key: value}, context=worker.limits(over_rest=True))
    with pytest.raises(FaultyConfigError):
        client_config(kind, worker, stored, {})
    of_file = ConnectorConfig.model_validate({**LEAST, key: value}, context=worker.limits(over_rest=False))
    assert client_config(kind, worker, of_file, {})[name] == value


def test_passwords_that_are_written_out_are_hidden_from_then_on(folder: Path) -> None:
    """Those of a worker file, whatever they are for, and those of a connector's clients."""
    of_worker = {"storage.s3.secret.access.key": "store-pw-1", "producer.sasl.password": "worker-pw-1"}
    worker = load_worker(worker_file(folder, **of_worker))
    assert faults({**LEAST, "producer.override.sasl.password": "Client-pw-1"}, worker) == []
    text = "store-pw-1 worker-pw-1 Client-pw-1"
    assert hide_all(text) == " ".join([HIDDEN] * 3)


def test_the_placeholders_of_a_connector_are_bounded(worker: WorkerConfig) -> None:
    """Each is a file that is read, several times."""
    given = {**LEAST, **{f"value.converter.s{number}": "${env:A}" * 50 for number in range(21)}}
    (said,) = faults(given, worker)
    assert said == "has more than 1000 placeholders; write out what is no secret."


@pytest.mark.parametrize("name", sorted(FILES))
def test_librdkafka_is_given_no_pipe(folder: Path, asked: list[Any], name: str) -> None:
    """It would wait for a writer, with all threads of the process: not even the worker file leads it there."""
    os.mkfifo(folder / "pipe")
    with pytest.raises(FaultyConfigError, match="names nothing that can be read"):
        load_worker(worker_file(folder, **{f"admin.{name}": str(folder / "pipe"), "admin.ssl.keystore.type": "PKCS12"}))
    assert not any(name in config for config in asked)


@pytest.mark.parametrize("user", ["", "root", "nobody", "nosuchuser", "daemon"])
def test_nobody_learns_which_users_there_are(user: str, folder: Path) -> None:
    """A home folder is refused in the same words, whether there is such a user or not."""
    text = f"~{user}/x"
    said = faults({**LEAST, "snapshot.location": text}, load_worker(worker_file(folder)))
    assert said == [f'snapshot.location: "{text}" counts from a user\'s home folder; name one from / on.']


SCRAM = {
    "producer.security.protocol": "SASL_SSL",
    "producer.sasl.mechanism": "SCRAM-SHA-512",
    "producer.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="kf" password="worker-pw-2";',
}
OAUTH = {
    "producer.security.protocol": "SASL_SSL",
    "producer.sasl.mechanism": "OAUTHBEARER",
    "producer.sasl.oauthbearer.method": "oidc",
    "producer.sasl.oauthbearer.client.id": "kf",
    "producer.sasl.oauthbearer.client.secret": "worker-pw-3",
    "producer.sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token",
}
TLS = {"producer.security.protocol": "SSL"}
LOGIN = {"sasl.username": "me", "sasl.password": "Own-pw-1"}


@pytest.mark.parametrize(
    ("of_worker", "own", "refused"),
    [
        (SCRAM, {"security.protocol": "SASL_PLAINTEXT"}, ["security.protocol"]),
        (SCRAM, {"security.protocol": "PLAINTEXT"}, ["security.protocol"]),
        (SCRAM, {"sasl.mechanism": "PLAIN"}, ["sasl.mechanism"]),
        (SCRAM, {"sasl.mechanisms": "SCRAM-SHA-256"}, ["sasl.mechanisms"]),
        (SCRAM, {"enable.ssl.certificate.verification": "false"}, ["enable.ssl.certificate.verification"]),
        (SCRAM, {"ssl.endpoint.identification.algorithm": ""}, ["ssl.endpoint.identification.algorithm"]),
        (SCRAM, {"ssl.truststore.certificates": "x", "ssl.truststore.type": "PEM"}, ["ssl.truststore.certificates"]),
        (SCRAM, {"ssl.cipher.suites": "NULL:@SECLEVEL=0"}, ["ssl.cipher.suites"]),
        (SCRAM, {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "me"}, ["security.protocol"]),
        (OAUTH, {"sasl.mechanism": "PLAIN", **LOGIN}, ["sasl.mechanism"]),
        (OAUTH, {"https.ca.pem": "x"}, ["https.ca.pem"]),
        (SCRAM, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **LOGIN}, []),
        (SCRAM, {"security.protocol": "SASL_SSL", "enable.ssl.certificate.verification": "true"}, []),
        (SCRAM, LOGIN, []),
        (TLS, {"security.protocol": "PLAINTEXT"}, []),
        ({}, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **LOGIN}, []),
    ],
)
def test_the_workers_login_is_sent_as_well_protected_as_its_file_says(
    folder: Path, asked: list[Any], of_worker: dict[str, str], own: dict[str, str], refused: list[str]
) -> None:
    """REST may weaken nothing for it, neither in a config that is sent nor in one that is stored; a file may."""
    worker = load_worker(worker_file(folder, **of_worker))
    given = {**LEAST, **{f"producer.override.{name}": text for name, text in own.items()}}
    said = faults(given, worker)
    assert [text.partition(":")[0] for text in said] == [f"producer.override.{name}" for name in refused]
    assert all("protects the login less than the worker's producer.* settings do" in text for text in said)
    stored = ConnectorConfig.model_validate(given, context=worker.limits(over_rest=True))
    if refused:
        with pytest.raises(FaultyConfigError, match="protects the login less"):
            client_config("producer", worker, stored, {})
    else:
        client_config("producer", worker, stored, {})
    of_file = ConnectorConfig.model_validate(given, context=worker.limits(over_rest=False))
    client_config("producer", worker, of_file, {})
