"""TLS and passwords: what an operator writes in the worker file, over a listener that takes nothing else."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from typer.testing import Result

from connectors import logging_setup
from tests.support.cli import invoke, own_logging
from tests.support.deployment import Deployment
from tests.support.kafka import consume_all, create_topic, produce
from tests.support.secured_broker import PLAIN, SCRAM, USER, Authority, SecuredKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD: Final = "Xq7-only-the-broker-knows"
WRONG: Final = "Zk2-nobody-has-this-one"
KINDS: Final = ("admin", "consumer", "producer")
QUICKLY_S: Final = 20.0
"""Far below librdkafka's own minute, far above what a busy machine needs."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The one that signed the broker's certificate."""
    return Authority(tmp_path_factory.mktemp("ca") / "ours")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SecuredKafka]:
    """The broker."""
    with SecuredKafka(tmp_path_factory.mktemp("secured"), authority, PASSWORD) as running:
        running.add_user()
        yield running


@pytest.fixture
def deployment(tmp_path: Path, secured: SecuredKafka, authority: Authority, topic_name: str) -> Deployment:
    """A connector that knows the broker's secured listener only, with SCRAM and the password in a file."""
    create_topic(secured.bootstrap, topic_name, partitions=2)
    found = Deployment(tmp_path, secured.bootstrap, topic_name)
    found.settings |= {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": f"{topic_name}.dead"}
    found.worker["bootstrap.servers"] = secured.sasl
    for kind in KINDS:
        found.worker |= of(kind, login(secret(tmp_path, PASSWORD)) | trusting(authority))
    return found


def secret(folder: Path, password: str) -> str:
    """A placeholder for `password`, in a file of its own."""
    file = folder / f"{password[:3]}.properties"
    file.write_text(f"password={password}\n")
    return f"${{file:{file}:password}}"


def login(password: str, mechanism: str = "SCRAM-SHA-512", module: str = SCRAM) -> dict[str, str]:
    """Java's settings of a client that logs in."""
    entry = f'{module} required username="{USER}" password="{password}";'
    return {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": entry}


def trusting(authority: Authority) -> dict[str, str]:
    """Java's settings of a client that trusts `authority`."""
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.certificate)}


def of(kind: str, settings: Mapping[str, str]) -> dict[str, str]:
    """`settings` as the worker file has them for clients of one kind."""
    return {f"{kind}.{name}": text for name, text in settings.items()}


def validate(deployment: Deployment) -> Result:
    """`keyfold validate --broker`."""
    connector, worker = deployment.write()
    return invoke("validate", connector, "--broker", "--worker", worker)


def holding(folder: Path, password: str) -> list[str]:
    """The files below `folder` that hold `password`, plain or in base64."""
    wanted = (password.encode(), base64.b64encode(password.encode()))
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".properties")
    return [str(path) for path in files if any(word in path.read_bytes() for word in wanted)]


@contextmanager
def event_log(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Spark's event log of what happens in the block, in `folder`, with all of every plan."""
    spark.conf.set("spark.sql.ui.explainMode", "extended")
    context, jvm = spark.sparkContext._jsc.sc(), spark._jvm
    assert jvm is not None
    settings = context.getConf().set("spark.eventLog.compress", "false").set("spark.eventLog.rolling.enabled", "false")
    deployment = jvm.java.net.URI(folder.as_uri())
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "events", jvm.scala.Option.empty(), deployment, settings
    )
    listener.start()
    context.addSparkListener(listener)
    try:
        yield
        context.listenerBus().waitUntilEmpty()
    finally:
        context.removeSparkListener(listener)
        listener.stop()
        spark.conf.unset("spark.sql.ui.explainMode")


def test_a_connector_works_over_tls_and_its_password_is_nowhere(
    deployment: Deployment, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All clients log in; no output, log, file of the store or event of Spark's holds the password."""
    produce(
        deployment.bootstrap,
        deployment.topic,
        [(0, b"a", b"1"), (0, b"a", b"2"), (1, b"b", b"1"), (1, None, b"no key")],
    )
    with own_logging(), event_log(spark, tmp_path):
        logging_setup.configure("debug")
        deployment.run_once(spark)
    kept = [(record.key, record.value) for record in consume_all(deployment.bootstrap, deployment.output)]
    assert kept == [(b"a", b"2"), (b"b", b"1")]
    assert [record.value for record in consume_all(deployment.bootstrap, f"{deployment.topic}.dead")] == [b"no key"]
    assert "MicroBatchScan" in (tmp_path / "events").read_text()
    printed = "".join(capfd.readouterr())
    assert "taken over" in printed
    assert PASSWORD not in printed
    assert holding(tmp_path, PASSWORD) == []


def test_other_commands_log_in_too(deployment: Deployment) -> None:
    """`validate --broker`, `tail` and `describe` with the same worker file; none shows the password."""
    produce(deployment.bootstrap, deployment.topic, [(0, b"a", b"1")])
    validated = validate(deployment)
    files = ("--worker", deployment.folder / "worker.json")
    tailed = invoke("tail", deployment.topic, "--from-beginning", "--max", 1, *files)
    described = invoke("describe", deployment.folder / "connector.json", "--json", *files)
    results = (validated, tailed, described)
    assert [result.exit_code for result in results] == [0, 0, 0], [result.output for result in results]
    assert json.loads(tailed.stdout)["key"] == "a"
    assert PASSWORD not in "".join(result.output for result in results)


@pytest.mark.parametrize("kind", ["admin", "producer"])
def test_a_wrong_password_is_told_soon(deployment: Deployment, kind: str) -> None:
    """Exit code 4, whose settings to correct, and neither password; whichever of the clients has it."""
    deployment.worker |= of(kind, login(secret(deployment.folder, WRONG)))
    began = time.monotonic()
    result = validate(deployment)
    assert time.monotonic() - began < QUICKLY_S
    assert result.exit_code == 4
    assert f"does not let the {kind} client in" in result.stderr
    assert "SASL authentication error" in result.stderr
    assert f"next: Check the user and password in {kind}.sasl.jaas.config" in result.stderr
    assert WRONG not in result.output
    assert PASSWORD not in result.output


def test_a_broker_that_is_not_trusted_is_told_soon(deployment: Deployment, tmp_path: Path) -> None:
    """A certificate of another authority, and one that names another host: exit code 4, and what to check."""
    for change in (of("admin", trusting(Authority(tmp_path / "other"))), _by_name(deployment)):
        kept = dict(deployment.worker)
        deployment.worker |= change
        began = time.monotonic()
        result = validate(deployment)
        assert time.monotonic() - began < QUICKLY_S
        assert (result.exit_code, "certificate verify failed" in result.stderr) == (4, True), result.stderr
        assert "admin.ssl.truststore.location" in result.stderr
        deployment.worker = kept


def _by_name(deployment: Deployment) -> dict[str, Any]:
    return {"bootstrap.servers": deployment.worker["bootstrap.servers"].replace("127.0.0.1", "localhost")}


def test_plain_passwords_are_taken(deployment: Deployment) -> None:
    """The mechanism PLAIN, inside TLS."""
    for kind in KINDS:
        deployment.worker |= of(kind, login(secret(deployment.folder, PASSWORD), "PLAIN", PLAIN))
    assert validate(deployment).exit_code == 0


def test_a_client_may_show_a_certificate_instead(
    deployment: Deployment, secured: SecuredKafka, authority: Authority
) -> None:
    """Mutual TLS: a PEM file, a PKCS12 store, or texts on one line; without one the broker lets nobody in."""
    pem = authority.issue("client")
    key, certificate = ((authority.folder / f"client.{end}").read_text().replace("\n", " ") for end in ("key", "crt"))
    store = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(authority.pkcs12(pem, PASSWORD))}
    ways: list[tuple[dict[str, str], int]] = [
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem)}, 0),
        ({**store, "ssl.keystore.password": secret(deployment.folder, PASSWORD)}, 0),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": key, "ssl.keystore.certificate.chain": certificate}, 0),
        ({}, 4),
    ]
    own = {name: value for name, value in deployment.worker.items() if name.partition(".")[0] not in KINDS}
    for settings, code in ways:
        common = {"security.protocol": "SSL", **trusting(authority), **settings}
        clients = {name: text for kind in KINDS for name, text in of(kind, common).items()}
        deployment.worker = {**own, **clients, "bootstrap.servers": secured.tls}
        result = validate(deployment)
        assert result.exit_code == code, (settings, result.output)
        assert key.split(" ")[5] not in result.output
