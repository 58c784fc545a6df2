"""The worker file and the environment over it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from connectors.config.environment import settings_of
from connectors.config.faults import FaultyConfigError
from connectors.config.keys import WORKER_KEYS
from connectors.config.worker import WorkerConfig

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


def test_an_unknown_variable_is_refused() -> None:
    """A variable that begins with KEYFOLD_ and is nothing of keyfold's is refused with the nearest one."""
    with pytest.raises(FaultyConfigError, match='did you mean "KEYFOLD_BOOTSTRAP_SERVERS"') as caught:
        settings_of({"KEYFOLD_BOOTSTRAP_SERVER": "x", "PATH": "y"})
    assert caught.value.file == "environment"


@pytest.mark.parametrize("key", sorted(WORKER_KEYS))
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
        ({"storage.locaton": "x"}, 'did you mean "storage.location"?'),
        ({"storage.location": "hdfs://x/y"}, "stores of the scheme hdfs: are not available yet"),
        ({"storage.location": ""}, "is not allowed"),
        ({"topics": "t"}, "is a key of the connector file"),
        ({"security.protocol": "SSL"}, "write consumer.security.protocol, producer.security.protocol and admin."),
        ({"log.level": "loud"}, "allowed is debug, info, warning or error"),
        ({"listeners": "http://x:1"}, "not available yet in keyfold"),
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


@pytest.mark.parametrize("servers", ["h:1", "h:1, i:2", "[::1]:9092", "127.0.0.1:65535"])
def test_brokers_are_hosts_with_ports(servers: str) -> None:
    """HOST:PORT, several with commas, IPv6 in brackets."""
    assert WorkerConfig(**LEAST | {"bootstrap.servers": servers}).bootstrap_servers == servers
