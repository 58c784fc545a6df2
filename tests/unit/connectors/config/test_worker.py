"""The worker file and the environment over it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from connectors.config.definitions import definitions
from connectors.config.errors import FaultyConfigError
from connectors.config.worker import OTHERS, WorkerConfig, settings_of, strange
from connectors.spark import private

LEAST: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:9092"}


def test_the_brokers_are_enough() -> None:
    """A worker needs bootstrap.servers; everything else has a default."""
    config = WorkerConfig(**LEAST)
    assert (config.storage_location, config.spark_master, config.log_level) == ("keyfold-data", "local[*]", "info")
    assert (config.spark_settings, config.consumer) == ({}, {})
    assert pickle.loads(pickle.dumps(config)) == config


def test_families_are_kept_under_their_short_names() -> None:
    """spark.* goes on to Spark under its full name; consumer.* and the others to the clients; spark.master is a key."""
    config = WorkerConfig(**LEAST | {"spark.master": "local[2]", "spark.x.y": 1, "consumer.fetch.min.bytes": 2})
    assert config.spark_master == "local[2]"
    assert config.spark_settings == {"spark.x.y": "1"}
    assert config.consumer == {"fetch.min.bytes": "2"}


def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """KEYFOLD_… is a key of the worker file with dots for underscores, and weighs more than the file."""
    monkeypatch.setenv("KEYFOLD_BOOTSTRAP_SERVERS", "other:1")
    monkeypatch.setenv("KEYFOLD_CONSUMER_FETCH_MIN_BYTES", "3")
    monkeypatch.setenv("KEYFOLD_FAILPOINTS", "publish.begin=error")
    config = WorkerConfig(**LEAST | {"consumer.fetch.min.bytes": 2, "log.level": "debug"})
    assert (config.bootstrap_servers, config.consumer["fetch.min.bytes"], config.log_level) == ("other:1", "3", "debug")
    assert "consumer.fetch.min.bytes" in config.given


def test_an_unknown_variable_is_named_and_sets_nothing() -> None:
    """A variable that begins with KEYFOLD_ and is nothing of keyfold's is told with the nearest one."""
    environment = {"KEYFOLD_BOOTSTRAP_SERVER": "x", "PATH": "y", "KEYFOLD_FAILPOINTS": "z", "KEYFOLD_LOG_LEVEL": "info"}
    assert settings_of(environment) == {"log.level": "info"}
    (said,) = strange(environment)
    assert said.startswith('KEYFOLD_BOOTSTRAP_SERVER: unknown variable; did you mean "KEYFOLD_BOOTSTRAP_SERVERS"?')


@pytest.mark.parametrize("service", ["KEYFOLD", "KEYFOLD_WORKER", "KEYFOLD_CONSUMER", "KEYFOLD_SPARK_MASTER"])
def test_what_kubernetes_sets_is_passed_over(service: str) -> None:
    """A service that is named keyfold or keyfold-… sets nothing of a worker, and nobody is warned of it."""
    environment = {
        f"{service}_SERVICE_HOST": "10.0.0.11",
        f"{service}_SERVICE_PORT": "8083",
        f"{service}_SERVICE_PORT_HTTP_API": "8083",
        f"{service}_PORT": "tcp://10.0.0.11:8083",
        f"{service}_PORT_8083_TCP": "tcp://10.0.0.11:8083",
        f"{service}_PORT_8083_TCP_PROTO": "tcp",
        f"{service}_PORT_8083_TCP_PORT": "8083",
        f"{service}_PORT_8083_TCP_ADDR": "10.0.0.11",
    }
    assert (settings_of(environment), strange(environment)) == ({}, ())


def test_a_port_of_sparks_is_a_setting() -> None:
    """A setting whose name ends as those of Kubernetes' do is one where its value is none of theirs."""
    assert settings_of({"KEYFOLD_SPARK_DRIVER_PORT": "7078"}) == {"spark.driver.port": "7078"}


def test_what_is_left_out_of_spark_is_no_setting_of_sparks() -> None:
    """Its variable is named as one would be."""
    assert private.VARIABLE in OTHERS
    assert settings_of({private.VARIABLE: private.ALL}) == {}


@pytest.mark.parametrize("key", sorted(definitions(WorkerConfig)))
def test_every_key_has_a_variable(key: str) -> None:
    """Each key of the worker file can be set in the environment."""
    assert settings_of({f"KEYFOLD_{key.replace('.', '_').upper()}": "v"}) == {key: "v"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bootstrap.servers": ...}, "bootstrap.servers: missing; it is required"),
        ({"bootstrap.servers": "a:1,b"}, '"b" is not HOST:PORT'),
        ({"bootstrap.servers": "a:70000"}, '"a:70000" is not HOST:PORT'),
        ({"bootstrap.servers": "SSL://a:1"}, "is not HOST:PORT"),
        (
            {"storage.s3.endpoint": "http://h:9000"},
            "endpoint: is without TLS; write https://, or set storage.s3.allow.http",
        ),
        ({"storage.azure.endpoint": "HTTP://h/a"}, "set storage.azure.allow.http to true"),
        ({"storage.gcs.endpoint": "http://h", "storage.gcs.allow.http": False}, "set storage.gcs.allow.http to true"),
        ({"storage.locaton": "x"}, 'did you mean "storage.location"?'),
        ({"storage.location": "hdfs://x/y"}, "keyfold knows no stores of the scheme hdfs:"),
        ({"storage.location": "s3:my-bucket/p"}, "a store is named by SCHEME://BUCKET/PREFIX"),
        ({"storage.location": "s3a:bucket/p"}, "keyfold knows no stores of the scheme s3a:"),
        ({"spark.master": "foo"}, '"foo" is not allowed: allowed is local, local[N]'),
        ({"spark.master": "local[0]"}, "is not allowed"),
        ({"spark.master": "spark://host"}, "is not allowed"),
        ({"storage.location": ""}, "is not allowed"),
        ({"topics": "t"}, "is a key of the connector file"),
        ({"security.protocol": "SSL"}, "write consumer.security.protocol, producer.security.protocol and admin."),
        ({"log.level": "loud"}, "allowed is debug, info, warning or error"),
        ({"plugin.path": "x"}, "not available yet in keyfold"),
        ({"listeners": "tcp://x:1"}, '"tcp://x:1" is not http://HOST:PORT'),
        ({"listeners": "http://x:70000"}, "is not http://HOST:PORT"),
        ({"rest.auth": "digest"}, "allowed is none or basic"),
        ({"log.cleaner.backoff.ms": -1}, "is not allowed"),
        ({"consumer.group.id": "g"}, "consumer.group.id: cannot be set"),
        ({"spark.speculation": "true"}, 'is always "false"'),
        ({"spark.x": "${env:KF_NOT_THERE}"}, "cannot be resolved"),
        ({"log.format": None}, "null is not allowed"),
    ],
)
def test_faults_of_a_worker_file(changes: dict[str, Any], said: str) -> None:
    """Whatever is wrong is refused, and the sentence says what to change."""
    settings = {name: value for name, value in (LEAST | changes).items() if value is not ...}
    with pytest.raises(FaultyConfigError) as caught:
        WorkerConfig(**settings)
    assert said in caught.value.message


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[2]", "local[*]", "local[*, 3]", "local-cluster[2,1,1024]", "yarn"),
        *("spark://a:7077", "spark://a:7077,b:7077", "k8s://https://h:443", "k8s://h"),
    ],
)
def test_every_master_that_spark_knows_is_taken(master: str) -> None:
    """The forms of Spark's documentation, and those that its own tests use."""
    assert WorkerConfig(**LEAST | {"spark.master": master}).spark_master == master


@pytest.mark.parametrize("store", ["s3", "azure", "gcs"])
def test_a_store_without_tls_is_taken_where_that_is_allowed(store: str) -> None:
    """For the server of a test, or of the same machine."""
    keys = {f"storage.{store}.endpoint": "http://127.0.0.1:9000", f"storage.{store}.allow.http": True}
    assert getattr(WorkerConfig(**LEAST | keys), f"storage_{store}_endpoint") == "http://127.0.0.1:9000"


@pytest.mark.parametrize("servers", ["h:1", "h:1, i:2", "[::1]:9092", "127.0.0.1:65535"])
def test_brokers_are_hosts_with_ports(servers: str) -> None:
    """HOST:PORT, several with commas, IPv6 in brackets."""
    assert WorkerConfig(**LEAST | {"bootstrap.servers": servers}).bootstrap_servers == servers
