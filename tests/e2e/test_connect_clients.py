"""Clients that were written for Kafka Connect do their whole round on a running worker with a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.connect.clients import run
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment
from tests.support.kafka import create_topic, produce, wait_until
from tests.support.records import random_records
from tests.support.rest_process import RestProcess

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("test_connect_clients.py"),
    pytest.mark.long,  # test_as_connect.py sends what clients send, and holds answers against those of Connect
]

HEALTH = """
import json, sys
from kafka_connect_healthcheck.health import Health
print(json.dumps(Health(sys.argv[1], None, ["FAILED"], "", 0, ["connector", "task"]).get_health_result()))
"""
"""What its server answers with; the server itself would listen on all addresses of the machine."""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, broker: EmbeddedKafka) -> Iterator[RestProcess]:
    """One worker for all clients."""
    with RestProcess(tmp_path_factory.mktemp("worker"), broker.bootstrap) as running:
        yield running


@pytest.fixture
def one(worker: RestProcess, broker: EmbeddedKafka, topic_name: str) -> Deployment:
    """A connector's settings, and its topic with records; the connector is not there yet."""
    create_topic(broker.bootstrap, topic_name, 2, cleanup_policy="delete")
    produce(broker.bootstrap, topic_name, random_records(1, 50))
    found = Deployment(worker.log.parent, broker.bootstrap, topic_name)
    found.settings |= {"tasks.max": "1"}
    return found


def config(one: Deployment) -> dict[str, Any]:
    return {key: value for key, value in one.settings.items() if key != "name"}


def round_of(worker: RestProcess, one: Deployment, pause: Callable[[], object], resume: Callable[[], object]) -> None:
    """Waits until it is RUNNING and has published, then has it paused and resumed."""
    worker.until_state(one.name, "RUNNING")
    wait_until(one.caught_up, "everything is published", PROCESS_TIMEOUT_S)
    pause()
    worker.until_state(one.name, "PAUSED")
    resume()
    worker.until_state(one.name, "RUNNING")


def test_kafka_connect_py(worker: RestProcess, one: Deployment) -> None:
    """kafka-connect-py: info, plugins, create, list, get, config, status, tasks, topics, restarts, delete.

    Not its validate-config, which sends the settings as a JSON string: Kafka Connect refuses them as well.
    """

    def kc(*arguments: str) -> Any:
        printed = run("kafka-connect-py", "kc", "--url", worker.url, *arguments)
        return json.loads(printed) if printed.strip().startswith(("{", "[")) else printed

    assert set(kc("info")) == {"version", "commit", "kafka_cluster_id"}
    assert "keyfold.CompactedTopic" in [plugin["class"] for plugin in kc("list-plugins")]
    assert kc("create", "-d", json.dumps({"name": one.name, "config": config(one)}))["name"] == one.name
    round_of(worker, one, lambda: kc("pause", one.name), lambda: kc("resume", one.name))
    assert one.name in kc("list")
    assert kc("list", "-e", "status", "-p", one.name)[one.name]["status"]["connector"]["state"] == "RUNNING"
    assert kc("list", "-s", "RUNNING", "-p", one.name)
    assert kc("get", one.name)["type"] == "sink"
    assert kc("config", one.name)["topics"] == one.topic
    assert [task["state"] for task in kc("status", one.name)["tasks"]] == ["RUNNING"]
    assert [task["id"] for task in kc("list-tasks", one.name)] == [{"connector": one.name, "task": 0}]
    assert kc("task-status", one.name, "0")["state"] == "RUNNING"
    assert kc("list-topics", one.name)[one.name]["topics"] == [one.topic]
    kc("reset-topics", one.name)
    kc("restart-task", one.name, "0")
    kc("restart", one.name, "--include-tasks")
    worker.until_state(one.name, "RUNNING")
    changed = {**config(one), "errors.tolerance": "all"}
    assert kc("update", one.name, "-d", json.dumps(changed))["config"]["errors.tolerance"] == "all"
    worker.until_state(one.name, "RUNNING")
    kc("delete", one.name)
    assert one.name not in kc("list")


def test_kafka_connect_cli(worker: RestProcess, one: Deployment) -> None:
    """kafka-connect-cli: create, list, get, configuration, update, pause, resume, restarts, tasks, health, delete."""

    def cli(*arguments: str) -> str:
        return run("kafka-connect-cli", "kafka_connect", *arguments, "--url", worker.url)

    cli("connector", "create", "--name", one.name, "--configuration", json.dumps(config(one)))
    named = ("--name", one.name)
    round_of(worker, one, lambda: cli("connector", "pause", *named), lambda: cli("connector", "resume", *named))
    assert one.name in cli("connector", "list")
    assert one.name in cli("connector", "get", *named)
    assert json.loads(cli("connector", "configuration", *named))["topics"] == one.topic
    assert "RUNNING" in cli("task", "list", "--connector", one.name)
    cli("connector", "update", *named, "--configuration", json.dumps({**config(one), "errors.tolerance": "all"}))
    worker.until_state(one.name, "RUNNING")
    cli("connector", "restart", *named)
    cli("task", "restart", "--connector", one.name, "--task", "0")
    worker.until_state(one.name, "RUNNING")
    cli("health-check")
    cli("connector", "delete", *named)
    assert one.name not in cli("connector", "list")


def test_kafkaconnect(worker: RestProcess, one: Deployment) -> None:
    """kafkaconnect: upload (validate, then make), list, info, status, config, tasks, topics, plugins, delete."""

    def kafkaconnect(*arguments: str) -> str:
        return run("kafkaconnect", "kafkaconnect", "-b", one.bootstrap, "-c", worker.url, *arguments)

    file = worker.log.parent / "upload.json"
    file.write_text(json.dumps({**config(one), "tasks.max": "1", "snapshot.retention.count": "1"}))
    assert '"error_count": 0' in kafkaconnect("upload", str(file), "--name", one.name, "--dry-run")
    kafkaconnect("upload", str(file), "--name", one.name)
    round_of(worker, one, lambda: kafkaconnect("pause", one.name), lambda: kafkaconnect("resume", one.name))
    assert one.name in json.loads(kafkaconnect("list"))
    assert json.loads(kafkaconnect("info", one.name))["name"] == one.name
    assert json.loads(kafkaconnect("status", one.name))["connector"]["state"] == "RUNNING"
    assert json.loads(kafkaconnect("config", one.name))["topics"] == one.topic
    assert len(json.loads(kafkaconnect("tasks", one.name))) == 1
    assert json.loads(kafkaconnect("topics", one.name))[one.name]["topics"] == [one.topic]
    assert "keyfold.CompactedTopic" in kafkaconnect("plugins")
    kafkaconnect("restart", one.name)
    worker.until_state(one.name, "RUNNING")
    kafkaconnect("delete", one.name)
    assert one.name not in json.loads(kafkaconnect("list"))


def test_kafka_connect_healthcheck(worker: RestProcess, one: Deployment) -> None:
    """kafka-connect-healthcheck: healthy while all run, and unhealthy with the name of one that is FAILED."""
    assert worker.create(one).status_code == 201
    worker.until_state(one.name, "RUNNING")
    healthy = json.loads(run("kafka-connect-healthcheck", "python", "-c", HEALTH, worker.url))
    assert (healthy["healthy"], healthy["failures"]) == (True, [])
    worker.ask("PATCH", f"/connectors/{one.name}/config", json={"topics": f"{one.topic}-none"})
    worker.until_state(one.name, "FAILED")
    unhealthy = json.loads(run("kafka-connect-healthcheck", "python", "-c", HEALTH, worker.url))
    assert unhealthy["healthy"] is False
    assert {failure["connector"] for failure in unhealthy["failures"]} == {one.name}
    worker.ask("DELETE", f"/connectors/{one.name}")
