"""The compose file's broker, as far as that can be tried without a container engine: by the image's own program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from compose_spec import PyCompose
from confluent_kafka.admin import ConfigResource, ResourceType

from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.jvm.artifacts import ensure_kafka
from connectors.jvm.java import find_java
from tests.support.kafka import TIMEOUT_S, admin

COMPOSE = Path(__file__).parents[2] / "docker" / "compose.yaml"
CLUSTER = "5L6g3nShT-eMCtK--X86sw"


def _environment() -> dict[str, str]:
    services = PyCompose.from_yaml(COMPOSE.read_text(encoding="utf-8")).to_dict()["services"]
    return {name: str(value) for name, value in services["broker"]["environment"].items()}


def _property(name: str) -> str:
    """The image's rule: KAFKA_LOG_DIRS is log.dirs."""
    return name.removeprefix("KAFKA_").lower().replace("_", ".")


def test_every_setting_is_one_that_a_broker_has(broker: EmbeddedKafka) -> None:
    """The broker itself lists its settings; a name that is spelled wrong would be ignored without a word."""
    client = admin(broker.bootstrap)
    wanted = ConfigResource(ResourceType.BROKER, "1")
    known = client.describe_configs([wanted])[wanted].result(TIMEOUT_S)
    assert {_property(name) for name in _environment()} - set(known) == set()


def test_the_images_own_start_takes_the_environment(tmp_path: Path) -> None:
    """The program that the image starts with makes server properties of it, with which a folder can be formatted."""
    given, mounted, made, data = (tmp_path / name for name in ("given", "mounted", "made", "data"))
    for folder in (given, mounted, made):
        folder.mkdir()
    for name in ("server.properties", "log4j2.yaml", "tools-log4j2.yaml"):
        (given / name).write_text("")
    command = [find_java(), "-cp", f"{ensure_kafka()}/*", "kafka.docker.KafkaDockerWrapper", "setup"]
    for option, folder in (("default", given), ("mounted", mounted), ("final", made)):
        command += [f"--{option}-configs-dir", str(folder)]
    done = subprocess.run(
        command,
        env={**os.environ, **_environment(), "KAFKA_LOG_DIRS": str(data), "CLUSTER_ID": CLUSTER},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    lines = (made / "server.properties").read_text().split()
    expected = {_property(name): value for name, value in _environment().items()} | {"log.dirs": str(data)}
    assert dict(line.split("=", 1) for line in lines) == expected
    assert f"cluster.id={CLUSTER}" in (data / "meta.properties").read_text()
